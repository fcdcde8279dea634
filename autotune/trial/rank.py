"""One rank of one trial or probe, from fork to report."""

import contextlib
import faulthandler
import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from typing import Any

import deepspeed
import deepspeed.ops
import torch
import torch.distributed as dist

from autotune.job.cpu_threads import VARIABLE
from autotune.study.outcome import Phase
from autotune.trial import emulated_rank, wire
from autotune.trial.build_locks import remove_stale_locks
from autotune.trial.device import Device, open_device
from autotune.trial.failure import examine
from autotune.trial.measure import run_steps
from autotune.trial.model import build_model
from autotune.trial.peers import NoPeers, Peers, RealPeers, open_communicator, open_store
from autotune.trial.probe.run import probe
from autotune.trial.probe.spec import ProbeSpec
from autotune.trial.spec import Emulation, Place, TrialSpec


def run_rank(
    spec_json: Mapping[str, Any], place_json: Mapping[str, Any], events_fd: int, *, program: str
) -> int:
    """Run one rank and send its report; return the exit code, 0 after a measurement.

    Events sent: `mark` (phase, where), `store` (port), and one of `measured`, `probed`, `failed`.
    """
    spec: TrialSpec | ProbeSpec
    if program == ProbeSpec.program:
        spec = ProbeSpec.from_json(spec_json)
    else:
        spec = TrialSpec.from_json(spec_json)
    place = Place(**place_json)
    if isinstance(spec, TrialSpec) and spec.emulation is not None:
        place = emulated_rank.place_of(spec.emulation, place)
    _own_log(place.log_path)
    os.set_inheritable(events_fd, False)  # noqa: FBT003  positional only
    os.environ.update(place.environment())
    # As a launcher would set it: for what brings an OpenMP of its own.
    os.environ[VARIABLE] = str(spec.num_threads)
    return _Rank(spec, place, events_fd).run()


def _steps_on_host(spec: TrialSpec) -> bool:
    offload = spec.ds_config.get("zero_optimization", {}).get("offload_optimizer") or {}
    return spec.device_kind == "cuda" and offload.get("device", "none") != "none"


def _own_log(path: str) -> None:
    """Redirect all output, C++ included, to the rank's log."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for fd in (1, 2):
        os.dup2(log, fd)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # The slot requests the stacks before it ends a hung rank.
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)


class _Rank:
    def __init__(self, spec: TrialSpec | ProbeSpec, place: Place, events_fd: int) -> None:
        self._spec = spec
        self._place = place
        self._events_fd = events_fd
        self._phase = Phase.BUILD
        self._device: Device | None = None

    def run(self) -> int:
        try:
            self._mark(Phase.BUILD, "device")
            self._device = open_device(self._spec, self._place)
            sys.stdout.write(f"CPU threads: {torch.get_num_threads()}\n")
            if isinstance(self._spec, ProbeSpec):
                self._probe(self._spec, self._device)
            else:
                self._train(self._spec, self._device)
        except BaseException as error:  # noqa: BLE001  any exception is this trial's outcome
            self._report(error)
            return 1
        return 0

    def _probe(self, spec: ProbeSpec, device: Device) -> None:
        self._join(device, emulation=None)
        rows = probe(
            spec,
            rank=self._place.rank,
            device=device,
            mark=lambda where: self._mark(Phase.STEADY, where),
        )
        wire.send(self._events_fd, "probed", rows=rows)

    def _train(self, spec: TrialSpec, device: Device) -> None:
        place = self._place
        if place.local_rank == 0:
            # Before the rendezvous, so before any rank of this node builds an extension.
            remove_stale_locks()
        peers = self._join(device, emulation=spec.emulation)
        device.enforce_ceiling()
        self._mark(Phase.BUILD, "model")
        model = build_model(spec, device.torch_device)
        build_peak = device.take_peak(Phase.BUILD)
        device.enforce_ceiling()
        self._mark(Phase.INIT, "initialize")
        engine, *_ = deepspeed.initialize(model=model, config=dict(spec.ds_config))
        if spec.emulation is not None:
            emulated_rank.take_every_step(engine.optimizer)
            if _steps_on_host(spec):
                emulated_rank.slow_down_host(
                    engine.optimizer, spec.emulation.host_slowdown, wait=device.wait
                )
        init_peak = device.take_peak(Phase.INIT)
        device.enforce_ceiling()
        measurement, stop = run_steps(
            engine,
            spec,
            place,
            device=device,
            peers=peers,
            mark=self._mark,
            memory=(build_peak, init_peak),
        )
        wire.send(self._events_fd, "measured", measurement=measurement.to_json(), stop=stop.value)

    def _join(self, device: Device, *, emulation: Emulation | None) -> Peers:
        """Enter the process group; return its ranks."""
        # DeepSpeed would compile its shared-memory collectives for a minute and leave 66 MiB a
        # rank in /dev/shm after every trial; training never calls them.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
        self._mark(Phase.BUILD, "rendezvous")
        if emulation is not None:
            emulated_rank.join(emulation)
            return NoPeers()
        store = open_store(self._place, timeout_s=self._spec.hang_timeouts_s[Phase.BUILD])
        if self._place.rank == 0:
            os.environ["MASTER_PORT"] = str(store.port)
            wire.send(self._events_fd, "store", port=store.port)
        dist.init_process_group(
            device.backend, store=store, rank=self._place.rank, world_size=self._place.world_size
        )
        deepspeed.init_distributed(device.backend)
        open_communicator(device.torch_device)
        return RealPeers(self._place.world_size)

    def _mark(self, phase: Phase, where: str) -> None:
        self._phase = phase
        wire.send(self._events_fd, "mark", phase=phase.value, where=where, at=time.time())

    def _report(self, error: BaseException) -> None:
        diagnosis = examine(error, self._phase, self._device)
        if self._device:
            # A report needs memory too. After an illegal access every CUDA call fails.
            with contextlib.suppress(RuntimeError):
                self._device.lift_ceiling()
        traceback.print_exc()
        wire.send(
            self._events_fd,
            "failed",
            failure=diagnosis.kind.value,
            phase=self._phase.value,
            message=diagnosis.message,
            needed_bytes=diagnosis.needed_bytes,
            short_bytes=diagnosis.short_bytes,
            at=time.time(),
        )
