"""The pool: where trials run, from Ray cluster to slot groups."""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import ray

from autotune.errors import DispatchError, HardwareError
from autotune.pool import machine
from autotune.pool.build import build_on_every_node
from autotune.pool.local_ray import ray_cluster
from autotune.pool.placement import SlotGroup, num_devices, open_group, reserve_groups
from autotune.pool.supervise import OnMark, run_ranks
from autotune.pool.tenancy import Tenancy
from autotune.trial.probe.spec import ProbeSpec
from autotune.trial.report import RankReport
from autotune.trial.spec import TrialSpec

_CLOSE_SLOTS_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRequest:
    """What a study needs from a pool."""

    world_size: int
    """Ranks of one trial."""
    device_kind: str
    """cuda or cpu."""
    model_type: str
    """Hugging Face's; its modelling code is preloaded."""
    ray_address: str | None = None
    """Of a running cluster; None starts one on this machine."""
    emulate: bool | None = False
    """Whether one device emulates one rank of a trial, instead of a device for each; None decides
    by the number of devices."""
    offers_emulation: bool = True
    """Whether the command has `--evaluator emulated`, to suggest it with too few devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRun:
    """One trial's reports, neighbours and duration."""

    reports: tuple[RankReport, ...]
    neighbours: tuple[int, ...]
    """Numbers of the trials that ran on the same nodes at the same time."""
    duration_s: float
    """From launch to the last report, without the wait for a free group."""


class Pool:
    """Slot groups of the devices of one trial; each runs one at a time. A context manager.

    Raises:
        HardwareError: too few devices for one trial.
        DispatchError: Ray or a slot does not start.
    """

    def __init__(self, request: PoolRequest) -> None:
        self.request = request
        self._cancelled = threading.Event()
        self._stack = contextlib.ExitStack()
        try:
            self._open()
        except BaseException:
            self._stack.close()
            raise

    def _open(self) -> None:
        request = self.request
        if request.ray_address is None:
            # Before Ray starts: a wrong --gpus is reported at once, not after ten seconds.
            _require_devices(request, _devices_here(request.device_kind), where="this machine")
        num_cpus = max(machine.num_cpus(), len(machine.cuda_device_names()))
        self._stack.enter_context(ray_cluster(request.ray_address, num_cpus=num_cpus))
        available = num_devices(request.device_kind)
        _require_devices(request, available, where=request.ray_address or "this machine")
        self.num_devices = available
        self.emulates = _emulates(request, available)
        group_size = 1 if self.emulates else request.world_size
        placed = reserve_groups(
            group_size,
            num_groups=available // group_size,
            device_kind=request.device_kind,
        )
        if request.ray_address is not None:
            for group in placed:
                self._stack.callback(_remove, group)
        self.groups: tuple[SlotGroup, ...] = tuple(
            open_group(group, device_kind=request.device_kind, model_type=request.model_type)
            for group in placed
        )
        if request.ray_address is not None:
            self._stack.callback(_close_slots, self.groups)
        self._tenancy = Tenancy([frozenset(group.nodes) for group in self.groups])

    @property
    def num_groups(self) -> int:
        """How many trials may run at once."""
        return len(self.groups)

    @property
    def device_bytes(self) -> int:
        """The smallest device's memory; a CPU slot's is its share of the host's."""
        if self.request.device_kind == "cpu":
            return self._smallest_share("host_memory_bytes")
        return min(int(facts["device_bytes"]) for group in self.groups for facts in group.facts)

    @property
    def device_names(self) -> tuple[str, ...]:
        """Host, device and its model of every slot."""
        return tuple(
            f"{facts['host']} {facts['device']} {facts['device_name']}"
            for group in self.groups
            for facts in group.facts
        )

    @property
    def device_model(self) -> str:
        """The driver's name of the pool's devices; `cpu` for CPU slots.

        Raises:
            HardwareError: they are of several models, so trials cannot be compared.
        """
        models = {str(facts["device_name"]) for group in self.groups for facts in group.facts}
        if len(models) > 1:
            raise HardwareError(
                f"the pool has devices of several models: {', '.join(sorted(models))}; a study "
                "compares trials; give it devices of one model"
            )
        return models.pop()

    @property
    def driver(self) -> str | None:
        """The version of the devices' driver; the lowest if nodes differ, None for CPU slots."""
        versions = {facts["driver"] for group in self.groups for facts in group.facts}
        return min((str(version) for version in versions if version), default=None)

    @property
    def threads_per_slot(self) -> int:
        """CPU threads that each slot may use, so that all slots of a node share its CPUs."""
        return max(1, self._smallest_share("num_cpus"))

    @property
    def host_cpus(self) -> int:
        """The fewest CPUs of any node."""
        return min(int(facts["num_cpus"]) for group in self.groups for facts in group.facts)

    @property
    def host_memory_bytes(self) -> int:
        """The smallest memory of any node."""
        return min(
            int(facts["host_memory_bytes"]) for group in self.groups for facts in group.facts
        )

    def _smallest_share(self, fact: str) -> int:
        """Return the smallest value of a fact of the nodes, divided by the slots on each."""
        nodes = [node for group in self.groups for node in group.nodes]
        return min(
            int(facts[fact]) // nodes.count(node)
            for group in self.groups
            for node, facts in zip(group.nodes, group.facts, strict=True)
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user about the slots' environment, without duplicates."""
        notes = [note for group in self.groups for facts in group.facts for note in facts["notes"]]
        return tuple(dict.fromkeys(notes))

    def build_ops(self, ops: Sequence[str], *, on_note: Callable[[str], None]) -> None:
        """Build DeepSpeed's ops on every node, so that no trial has to.

        Args:
            ops: DeepSpeed's names of those that any trial may load.
            on_note: called for each op that has to be compiled.

        Raises:
            HardwareError: an op cannot be built.
            DispatchError: a slot is gone.
        """
        if ops and self.request.device_kind == "cuda":
            build_on_every_node(self.groups, ops, on_note=on_note)

    def run(self, spec: TrialSpec, *, number: int, alone: bool, on_mark: OnMark) -> PoolRun:
        """Run one trial; blocks, and may be called from several threads.

        Args:
            spec: the trial.
            number: the trial's, listed by its neighbours.
            alone: no other trial on the same nodes meanwhile.
            on_mark: called for the ranks' progress, from this thread.

        Raises:
            DispatchError: a slot is gone.
        """
        tenant = self._tenancy.acquire(number, alone=alone)
        began = time.monotonic()
        try:
            reports = run_ranks(
                self.groups[tenant.group], spec, on_mark=on_mark, cancelled=self._cancelled
            )
        finally:
            self._tenancy.release(tenant)
        return PoolRun(
            reports=tuple(reports),
            neighbours=tuple(sorted(tenant.neighbours)),
            duration_s=time.monotonic() - began,
        )

    def probe(self, spec: ProbeSpec, *, on_mark: OnMark) -> tuple[Mapping[str, Any], ...]:
        """Run a probe on the first group and return what each rank timed.

        Raises:
            DispatchError: a slot is gone, or a rank failed.
        """
        reports = run_ranks(self.groups[0], spec, on_mark=on_mark, cancelled=self._cancelled)
        failed = [report for report in reports if report.failure is not None]
        if failed:
            first = min(failed, key=lambda report: report.failure.at if report.failure else 0.0)
            assert first.failure is not None
            raise DispatchError(
                f"probe: rank {first.rank} on {first.device}: {first.failure.message}"
            )
        return tuple(report.probed for report in reports if report.probed is not None)

    def cancel(self) -> None:
        """End running trials within about a second; `close` ends those that are left after two."""
        self._cancelled.set()

    def close(self) -> None:
        """End everything that this pool started.

        Takes seconds, even if Ray has died already, or if the kernel needs longer for a rank: it
        has received SIGKILL and is not waited for.
        """
        self.cancel()
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _close_slots(groups: Sequence[SlotGroup]) -> None:
    # A busy slot answers too late, and leaves a folder of logs behind.
    if ray.is_initialized():
        closing = [slot.close.remote() for group in groups for slot in group.slots]
        with contextlib.suppress(ray.exceptions.RayError):
            ray.get(closing, timeout=_CLOSE_SLOTS_S)


def _remove(group: object) -> None:
    # Only for a cluster that keeps running; a local one ends with all its groups, and if it has
    # died already, Ray would wait a minute for an answer and then end this process. Removing the
    # group ends its actors; on a closed connection there is nothing to do.
    if ray.is_initialized():
        ray.util.remove_placement_group(group)


def _devices_here(device_kind: str) -> int:
    if device_kind == "cpu":
        return machine.num_cpus()
    return len(machine.cuda_device_names())


def _emulates(request: PoolRequest, available: int) -> bool:
    """Whether one device emulates one rank; on CPU slots only on request."""
    if request.emulate is not None:
        return request.emulate
    return request.device_kind == "cuda" and available < request.world_size


def _require_devices(request: PoolRequest, available: int, *, where: str) -> None:
    emulates = _emulates(request, available)
    if available >= (1 if emulates else request.world_size):
        return
    kind = "CPU slots" if request.device_kind == "cpu" else "CUDA devices"
    choices = [f"--gpus {available}"] if available else []
    if available and request.offers_emulation:
        choices.append(
            f"--evaluator emulated, where one of them emulates one rank of {request.world_size}"
        )
    if request.device_kind == "cuda" and request.ray_address is None:
        cpus = machine.num_cpus()
        choices.append(
            f"--device cpu with --gpus {min(cpus, request.world_size)} or less, to try the tool "
            "on CPU ranks"
        )
    choices.append("--ray-address of a cluster that has them")
    needs = (
        "one trial needs one for each rank" if request.offers_emulation else "each rank needs one"
    )
    if emulates:
        needs = "even an emulated trial needs one"
    raise HardwareError(
        f"--gpus {request.world_size}: {where} has {available} {kind}; {needs}; "
        f"choices: {'; '.join(choices)}"
    )
