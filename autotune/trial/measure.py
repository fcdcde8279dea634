"""The training steps of a trial, timed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from autotune.outcome import Phase, PhaseMemory, RankMeasurement
from autotune.step_times import compose_step_s
from autotune.trial.data import micro_batches
from autotune.trial.device import Device
from autotune.trial.peers import Peers
from autotune.trial.spec import Place, TrialSpec
from autotune.trial.stop import Stop, why_stop

Mark = Callable[[Phase, str], None]
"""Tells the supervisor how far this rank is: the phase, and a word on where in it."""


@dataclass(frozen=True, slots=True)
class _TimedStep:
    inner_s: float
    boundary_s: float
    loss: float


def run_steps(  # noqa: PLR0913  each is a different thing
    engine: Any,
    spec: TrialSpec,
    place: Place,
    *,
    device: Device,
    peers: Peers,
    mark: Mark,
    memory: tuple[PhaseMemory, ...],
) -> tuple[RankMeasurement, Stop]:
    """Train until the rule says stop; return what this rank measured and why it stopped.

    Args:
        engine: the DeepSpeed engine.
        spec: the trial.
        place: this rank's place.
        device: this rank's device.
        peers: the other ranks, to stop at the same step.
        mark: called by this thread before every micro step.
        memory: peaks of the phases before.
    """
    mark(Phase.FIRST_STEP, "step 0")
    steps = [_timed_step(engine, spec, place, device=device, step=0, mark=mark)]
    memory += (device.take_peak(Phase.FIRST_STEP),)
    retries_before = device.num_alloc_retries()
    slowest: list[float] = []
    stop = None
    while stop is None:
        steps.append(_timed_step(engine, spec, place, device=device, step=len(steps), mark=mark))
        shared = peers.share([steps[-1].inner_s, steps[-1].boundary_s])
        slowest.append(max(_whole_step_s(spec, inner, boundary) for inner, boundary in shared))
        stop = why_stop(slowest, spec.steps)
    memory += (device.take_peak(Phase.STEADY),)
    return (
        RankMeasurement(
            rank=place.rank,
            inner_s=tuple(step.inner_s for step in steps[1:]),
            boundary_s=tuple(step.boundary_s for step in steps[1:]),
            memory=memory,
            losses=tuple(step.loss for step in steps),
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


def _timed_step(
    engine: Any, spec: TrialSpec, place: Place, *, device: Device, step: int, mark: Mark
) -> _TimedStep:
    """Run one optimizer step; the tokens are made before the clock starts."""
    batches = [tokens.to(device.torch_device) for tokens in micro_batches(spec, place, step)]
    phase = Phase.FIRST_STEP if step == 0 else Phase.STEADY
    losses = []
    start = boundary = device.stamp()
    for index, tokens in enumerate(batches):
        mark(phase, f"step {step}, micro step {index}")
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
        loss=float(torch.stack(losses).mean()),
    )
