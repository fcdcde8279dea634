"""The training steps of a trial, timed."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from autotune.study.outcome import Phase, PhaseMemory, RankMeasurement
from autotune.study.step_times import compose_step_s
from autotune.trial.data import micro_batches
from autotune.trial.device import Device
from autotune.trial.peers import Peers
from autotune.trial.python_speed import host_loop_s
from autotune.trial.spec import Place, TrialSpec
from autotune.trial.stop_rule import Stop, why_stop

Mark = Callable[[Phase, str], None]
"""Reports progress to the supervisor: the phase, and where in it."""


_MAX_SKIPPED_STEPS = 40
"""DeepSpeed's dynamic loss scale starts at 2**16 and halves with every skipped step."""


@dataclass(frozen=True, slots=True)
class _TimedStep:
    inner_s: float
    boundary_s: float
    host_loop_s: float
    loss: float


def run_steps(  # noqa: PLR0913  the parts of a rank
    engine: Any,
    spec: TrialSpec,
    place: Place,
    *,
    device: Device,
    peers: Peers,
    mark: Mark,
    memory: tuple[PhaseMemory, ...],
) -> tuple[RankMeasurement, Stop]:
    """Train until the rule stops it; return this rank's measurement and why it stopped.

    Args:
        engine: the DeepSpeed engine.
        spec: the trial.
        place: this rank's place.
        device: this rank's device.
        peers: all ranks, to stop at the same step.
        mark: called by this thread before every micro step.
        memory: peaks of the earlier phases.
    """
    coming = _real_steps(engine, spec, place, device=device, mark=mark)
    steps = [next(coming)]
    memory += (device.take_peak(Phase.FIRST_STEP),)
    device.enforce_ceiling()
    retries_before = device.num_alloc_retries()
    slowest: list[float] = []
    stop = None
    while stop is None:
        steps.append(next(coming))
        shared = peers.share([steps[-1].inner_s, steps[-1].boundary_s])
        slowest.append(max(_whole_step_s(spec, inner, boundary) for inner, boundary in shared))
        stop = why_stop(slowest, spec.steps)
    memory += (device.take_peak(Phase.STEADY),)
    return (
        RankMeasurement(
            rank=place.rank,
            inner_s=tuple(step.inner_s for step in steps[1:]),
            boundary_s=tuple(step.boundary_s for step in steps[1:]),
            host_loop_s=tuple(step.host_loop_s for step in steps[1:]),
            memory=memory,
            # Those of an emulated rank are meaningless, and may be NaN.
            losses=() if spec.emulation else tuple(step.loss for step in steps),
            host_bytes=device.host_bytes(),
            alloc_retries=device.num_alloc_retries() - retries_before,
        ),
        stop,
    )


def _whole_step_s(spec: TrialSpec, inner_s: float, boundary_s: float) -> float:
    return compose_step_s(
        inner_s,
        boundary_s,
        timed_accumulation=spec.timed_accumulation,
        accumulation=spec.accumulation,
    )


def _real_steps(
    engine: Any, spec: TrialSpec, place: Place, *, device: Device, mark: Mark
) -> Iterator[_TimedStep]:
    """Yield the optimizer steps that were not skipped.

    fp16 skips the optimizer while its loss scale settles, on all ranks alike; such a step is
    faster, and needs less memory, than a real one.
    """
    phase = Phase.FIRST_STEP
    for step in itertools.count():
        batches = [tokens.to(device.torch_device) for tokens in micro_batches(spec, place, step)]
        where = partial(mark, phase)
        skipped_before = engine.skipped_steps
        timed = _timed_step(engine, batches, device=device, mark=where, step=step)
        if engine.skipped_steps == skipped_before:
            yield timed
            phase = Phase.STEADY
        elif engine.skipped_steps >= _MAX_SKIPPED_STEPS:
            raise RuntimeError(
                f"the fp16 loss scale did not settle within {_MAX_SKIPPED_STEPS} skipped steps; "
                "start lower with fp16.initial_scale_power"
            )


def _timed_step(
    engine: Any,
    batches: Sequence[torch.Tensor],
    *,
    device: Device,
    mark: Callable[[str], None],
    step: int,
) -> _TimedStep:
    """Run one optimizer step."""
    losses = []
    start = boundary = device.stamp()
    for index, tokens in enumerate(batches):
        mark(f"step {step}, micro step {index}")
        if index == len(batches) - 1:
            boundary = device.stamp()
        loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()
        losses.append(loss.detach())
    end = device.stamp()
    device.wait()
    return _TimedStep(
        inner_s=device.seconds_between(start, boundary),
        boundary_s=device.seconds_between(boundary, end),
        host_loop_s=host_loop_s(),
        loss=float(torch.stack(losses).mean()),
    )
