"""The outcome of a trial: a status with either a measurement or a reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from autotune.serialization import Serializable
from autotune.study.step_times import Interval, compose_step_s, mean_interval, num_warmup_steps


class Status(StrEnum):
    """How a trial ended. Only `COMPLETE` has no reason."""

    COMPLETE = "complete"
    REJECTED = "rejected"
    """Predicted not to fit, never launched."""
    INVALID = "invalid"
    """DeepSpeed refuses the config."""
    OVER_CEILING = "over_ceiling"
    """Needs more than the ceiling allows on a device."""
    OOM_DEVICE = "oom_device"
    """The device itself ran out, below the ceiling."""
    OOM_HOST = "oom_host"
    """Host memory ran out."""
    SLOW = "slow"
    """Stopped early: clearly slower than the best."""
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    DIVERGED = "diverged"
    """Its losses differ from the reference config's."""

    @property
    def does_not_fit(self) -> bool:
        """Whether the trial needs, or is predicted to need, more memory than there is."""
        return self in (
            Status.REJECTED,
            Status.OVER_CEILING,
            Status.OOM_DEVICE,
            Status.OOM_HOST,
        )


class Phase(StrEnum):
    """Where in a trial a rank is."""

    BUILD = "build"
    INIT = "init"
    FIRST_STEP = "first step"
    STEADY = "steady"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseMemory:
    """The most memory a rank used in one phase, in bytes."""

    phase: Phase
    used_bytes: int
    """What counts against the ceiling: on CPU ranks the memory above the parent's, on CUDA what
    the driver reports."""
    allocated_bytes: int | None = None
    """Live tensors in torch's caching allocator; None on CPU ranks, which have none."""
    reserved_bytes: int | None = None
    """What torch's caching allocator holds; None on CPU ranks."""


THROTTLED = frozenset({"hw slowdown", "hw thermal", "hw power brake", "sw thermal"})
"""Limits on a card's clock that mean something is wrong: heat, power supply. The power cap is not
among them: under load many cards run at it all the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClocks(Serializable):
    """Clocks of a CUDA device in the steady steps, sampled by NVML."""

    num_samples: int
    sm_clock_mhz_min: int
    sm_clock_mhz_median: int
    temperature_c_max: int
    power_w_max: float | None = None
    """None where the card does not report it."""
    limits: tuple[str, ...] = ()
    """Clock limits in any sample: the names in `THROTTLED`, `sw power cap`, ..."""

    @property
    def throttled(self) -> tuple[str, ...]:
        """The limits that mean something is wrong."""
        return tuple(limit for limit in self.limits if limit in THROTTLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankMeasurement(Serializable):
    """What one rank measured, one entry per optimizer step after the first."""

    rank: int
    inner_s: tuple[float, ...]
    """Seconds of all inner micro steps of a step; 0 without accumulation."""
    boundary_s: tuple[float, ...]
    """Seconds of the boundary micro step: forward, backward with the reduction, `step`."""
    memory: tuple[PhaseMemory, ...]
    losses: tuple[float, ...]
    """Mean loss of this rank's sequences, one per optimizer step, the first included; none of an
    emulated rank."""
    host_loop_s: tuple[float, ...] = ()
    """Processor time of a fixed loop of Python right after each step: the speed of the host. Empty
    if recorded by an older version."""
    host_bytes: int = 0
    """Peak resident host memory of the rank."""
    alloc_retries: int = 0
    """Times that torch's allocator had to give back its cache in the steady steps."""
    clocks: DeviceClocks | None = None
    """None on CPU ranks, and where NVML reports nothing."""

    @property
    def peak_bytes(self) -> int:
        """The most memory over all phases that counts against the ceiling."""
        return max(m.used_bytes for m in self.memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement(Serializable):
    """The ranks' raw numbers, and the speed and memory computed from them."""

    tokens_per_step: int
    """Of the user's global batch, all ranks together."""
    accumulation: int
    """Micro steps of the user's optimizer step."""
    timed_accumulation: int
    """Micro steps of the steps that were timed; equal to `accumulation` for whole steps."""
    ranks: tuple[RankMeasurement, ...]

    @property
    def composed(self) -> bool:
        """Whether step times are composed from shorter steps."""
        return self.timed_accumulation != self.accumulation

    @property
    def all_step_s(self) -> tuple[float, ...]:
        """Seconds per optimizer step, warm-up included; the slowest rank counts."""
        return tuple(
            max(self._step_s(rank, step) for rank in self.ranks)
            for step in range(min(len(rank.boundary_s) for rank in self.ranks))
        )

    def _step_s(self, rank: RankMeasurement, step: int) -> float:
        return compose_step_s(
            rank.inner_s[step],
            rank.boundary_s[step],
            timed_accumulation=self.timed_accumulation,
            accumulation=self.accumulation,
        )

    @property
    def step_s(self) -> tuple[float, ...]:
        """Seconds per optimizer step without the warm-up."""
        steps = self.all_step_s
        return steps[num_warmup_steps(steps) :]

    @property
    def tokens_per_s(self) -> Interval:
        """Tokens per second of all ranks; the interval is that of the mean step time."""
        step = mean_interval(self.step_s)
        fastest = self.tokens_per_step / step.low if step.low > 0 else float("inf")
        return Interval(self.tokens_per_step / step.mean, self.tokens_per_step / step.high, fastest)

    @property
    def throttled(self) -> tuple[str, ...]:
        """The limits of any rank's device that mean something is wrong."""
        return tuple(
            sorted({t for rank in self.ranks if rank.clocks for t in rank.clocks.throttled})
        )

    @property
    def host_loop_s(self) -> tuple[float, ...]:
        """The fixed loop of Python after each step, warm-up included, where the host ran slowest.

        Ranks wait for each other, so the slowest one's host is every rank's.
        """
        return tuple(map(max, zip(*(rank.host_loop_s for rank in self.ranks), strict=False)))

    @property
    def peak_bytes(self) -> int:
        """Peak memory of the rank that holds the most."""
        return max(rank.peak_bytes for rank in self.ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Modelled:
    """Predicted numbers of a trial that did not run. It has no ranks, steps or losses."""

    tokens_per_s: Interval
    """All ranks; the interval is the model's error, not the spread of steps."""
    peak_bytes: int
    """Of the rank that holds the most, as it counts against the ceiling."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        speed = self.tokens_per_s
        return {
            "tokens_per_s": [speed.mean, speed.low, speed.high],
            "peak_bytes": self.peak_bytes,
        }

    @classmethod
    def from_json(cls, mapping: Mapping[str, Any]) -> Self:
        """Rebuild it from `to_json`."""
        return cls(
            tokens_per_s=Interval(*mapping["tokens_per_s"]), peak_bytes=mapping["peak_bytes"]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a trial did not complete."""

    reason: str
    """One sentence for a reader."""
    rank: int | None = None
    """The rank that failed first; None when no rank ever ran."""
    phase: Phase | None = None
    needed_bytes: int | None = None
    """For trials that do not fit: the bytes the rank held plus those of the failed request."""
    short_bytes: int | None = None
    """Missing bytes, where an allocation failed and its size is known."""
    log: str | None = None
    """That rank's log, relative to the study folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Serializable):
    """A trial's status with a measurement (or a prediction), a failure, or (for `SLOW`) both.

    A failed trial is data: nothing here is ever raised.
    """

    skips_unknown_keys = True

    status: Status
    evaluator: str
    """measured, emulated or modelled."""
    measurement: Measurement | None = None
    modelled: Modelled | None = None
    """Replaces the measurement where nothing ran."""
    failure: Failure | None = None
    duration_s: float = 0.0
    """From launch to outcome."""
    ranks_s: float = 0.0
    """From the first rank's fork to the last rank's exit: `duration_s` without the tuner."""
    neighbours: tuple[int, ...] = ()
    """Trials that ran on the same nodes at the same time."""
    devices: tuple[str, ...] = ()
    """One per rank: host and device."""
    charged_bytes: int = 0
    """Part of the ceiling that is kept free for memory that only a real rank needs; no other field
    includes it."""

    def __post_init__(self) -> None:
        if self.measurement is not None and self.modelled is not None:
            raise ValueError("a trial is measured or modelled, not both")
        if self.status is Status.COMPLETE and self.measurement is None and self.modelled is None:
            raise ValueError("a complete trial has a measurement or a prediction")
        if self.status is not Status.COMPLETE and self.failure is None:
            raise ValueError(f"a trial that is {self.status} carries a reason")

    @property
    def has_true_losses(self) -> bool:
        """Whether its losses are those of the training: only real ranks communicate."""
        return self.evaluator == "measured"

    @property
    def has_numbers(self) -> bool:
        """Whether it has a speed and a peak, measured or modelled."""
        return self.measurement is not None or self.modelled is not None

    @property
    def measured(self) -> Measurement:
        """The measurement of a trial that has one, as every complete trial does.

        Raises:
            ValueError: it has none.
        """
        if self.measurement is None:
            raise ValueError(f"a trial that is {self.status} was not measured")
        return self.measurement

    @property
    def tokens_per_s(self) -> Interval:
        """Tokens per second of all ranks, measured or modelled (see `evaluator`).

        Raises:
            ValueError: the trial has no speed.
        """
        return self.modelled.tokens_per_s if self.modelled else self.measured.tokens_per_s

    @property
    def peak_bytes(self) -> int:
        """Peak memory of the rank that holds the most, measured or modelled.

        Raises:
            ValueError: the trial has none.
        """
        return self.modelled.peak_bytes if self.modelled else self.measured.peak_bytes
