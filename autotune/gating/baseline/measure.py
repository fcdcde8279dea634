"""`--measure`: a trial on the pool, compared with the record's own numbers and their spread."""

import importlib.util
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.ds_config.build import build_ds_config
from autotune.errors import GateError, HardwareError
from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.job.ceiling import format_gib
from autotune.lint.finding import Finding, Severity
from autotune.lint.rule_info import RuleInfo
from autotune.lint.subject import Subject
from autotune.sigterm import interrupted_by_sigterm
from autotune.study.environment import THREADS_PER_RANK
from autotune.study.outcome import Outcome, Status
from autotune.study.record import Record

NUM_RUNS = 2
"""Runs of whole optimizer steps; one alone cannot be told from noise."""
_NEEDED = ("ray", "torch", "deepspeed", "transformers")
_CEILING_SHARE = 0.9
"""Where the record tells no ceiling."""
_TOO_NOISY = 0.5
"""A band wider than this says nothing: few runs, or a busy machine."""
_LEAST_PEAK_BAND = 0.01
"""Peaks of one config differ by this much between runs that happened to be alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What the runs came to."""

    evaluator: str
    outcomes: tuple[Outcome, ...]

    @property
    def failed(self) -> Outcome | None:
        """The run that did not complete, or None."""
        return next((run for run in self.outcomes if run.status is not Status.COMPLETE), None)

    @property
    def tokens_per_s(self) -> float | None:
        """Mean over the runs, all ranks; None if one failed."""
        if self.failed is not None:
            return None
        return sum(r.measured.tokens_per_s.mean for r in self.outcomes) / len(self.outcomes)

    @property
    def peak_bytes(self) -> int | None:
        """Of the fattest rank of all runs; None if one failed."""
        if self.failed is not None:
            return None
        return max(run.measured.peak_bytes for run in self.outcomes)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "evaluator": self.evaluator,
            "statuses": [run.status.value for run in self.outcomes],
            "num_runs": len(self.outcomes),
            "tokens_per_s": self.tokens_per_s,
            "peak_bytes": self.peak_bytes,
        }


def require_measurable(record: Record) -> None:
    """Make sure that there is something to compare runs with, and what runs need.

    Raises:
        GateError: nothing was run for the record.
        HardwareError: a package is not installed.
    """
    if record.evaluator == EvaluatorKind.MODELLED:
        raise GateError(
            f"--measure: the numbers of {record.path} are modelled, nothing was run for them, so "
            "there is nothing to compare with; give the record of a measured or emulated study"
        )
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise HardwareError(
            f"--measure: needs {', '.join(missing)}, which this environment lacks; install "
            "autotune with its dependencies"
        )


def measure(subject: Subject, record: Record, *, ray_address: str | None = None) -> Measured:
    """Run a config as the record's were run: same model, batch, ranks and evaluator.

    The model is set as the launch says, and where that is not known as the record says.

    Raises:
        AutotuneError: the record or this environment does not allow it, the config cannot be made
            into a trial, the pool has too few devices, or it failed (`DispatchError`).
    """
    require_measurable(record)
    # Loaded here: they bring Ray, and the rest of the gate does without.
    from autotune.evaluate import TrialRequest
    from autotune.evaluate.factory import make_evaluator
    from autotune.pool.pool import Pool, PoolRequest
    from autotune.predict.links.communication import Links

    workload = record.workload
    device_kind = str(record.environment.get("device_kind", "cuda"))
    pool_request = PoolRequest(
        world_size=workload.world_size,
        device_kind=device_kind,
        model_type=workload.model.model_type,
        ray_address=ray_address,
        offers_emulation=False,
        emulate=record.emulation is not None,
    )
    ds_config = build_ds_config(subject.config, workload, {})
    settings = dict(record.model_settings)
    if subject.launch.activation_checkpointing is not None:
        settings["activation_checkpointing"] = subject.launch.activation_checkpointing
    outcomes: list[Outcome] = []
    with (
        tempfile.TemporaryDirectory(prefix="autotune-gate-") as folder,
        interrupted_by_sigterm(),
        Pool(pool_request) as pool,
    ):
        links = (record.emulation or {}).get("links")
        evaluator = make_evaluator(
            pool,
            workload=workload,
            ceiling_bytes=_ceiling_bytes(record, pool.device_bytes),
            gpus_per_node=(record.emulation or {}).get("gpus_per_node"),
            seed=0,
            study_folder=Path(folder),
            num_threads=subject.launch.cpu_threads or record.environment.get(THREADS_PER_RANK),
            links=Links.from_json(links) if links else None,
        )
        for number in range(NUM_RUNS):
            request = TrialRequest(
                number=number,
                label=f"gate-{number}",
                ds_config=ds_config,
                model_settings=settings,
                whole_steps=True,
                same_weights=True,
            )
            outcomes.append(evaluator.evaluate(request, lambda *_: None))
            if outcomes[-1].status is not Status.COMPLETE:
                break
    return Measured(evaluator=record.evaluator, outcomes=tuple(outcomes))


def compare_measured(
    measured: Measured, record: Record, *, max_regression: float | None
) -> Iterator[Finding]:
    """Yield where the runs fall behind the record."""
    if (failed := measured.failed) is not None:
        yield from measured_failed(failed)
        return
    yield from measured_slower(measured, record, max_regression)
    yield from measured_fatter(measured, record)


def measured_failed(outcome: Outcome) -> Iterator[Finding]:
    """A run of `--measure` did not end well.

    It ran out of memory under the record's ceiling, DeepSpeed refused the config at `initialize`,
    or it crashed or hung.
    """
    failure = outcome.failure
    where = "" if failure is None or failure.phase is None else f" in {failure.phase}"
    why = "no reason is known" if failure is None else failure.reason
    yield FAILED.finding("", f"the measured run is {outcome.status}{where}: {why}")


def measured_slower(
    measured: Measured, record: Record, max_regression: float | None
) -> Iterator[Finding]:
    """The measured speed is below the record's noise band, by more than is allowed.

    The record's band of one run is its 95 % interval of the mean of n runs, widened by
    sqrt(1 + n / k) for the mean of k new ones. Measured tokens/s below the band fail. With
    `--max-regression R` only those fail that are below `record x (1 - R)` as well. A record of a
    single run has no band, and one of more than half the number tells nothing: without R that is
    a warning.

    Look for what else runs on the machine, then for what the findings say has changed.
    """
    now, then = measured.tokens_per_s, record.tokens_per_s.mean
    assert now is not None
    band = noise_band(record, num_new=len(measured.outcomes))
    allowed = max((share for share in (band, max_regression) if share is not None), default=1.0)
    floor = then * (1 - allowed)
    if now < floor:
        yield SLOWER.finding(
            "tokens_per_s",
            f"{measured.evaluator} {now:,.0f} tokens/s, {now / then - 1:+.1%} of the record's "
            f"{then:,.0f}; allowed are {floor:,.0f} and more",
            suggestion="see what differs from the record, or measure the config anew with run",
        )
    elif allowed > _TOO_NOISY and max_regression is None:
        why = "a single run has no noise band" if band is None else f"it is noisy by {band:.0%}"
        yield SLOWER.finding(
            "tokens_per_s",
            f"{record.path}: {why}, so nothing follows from {measured.evaluator} {now:,.0f} "
            f"tokens/s beside its {then:,.0f}",
            suggestion="say what may be lost with --max-regression 5%, or run the study again "
            "with more --confirm-rounds",
            severity=Severity.WARNING,
        )


def measured_fatter(measured: Measured, record: Record) -> Iterator[Finding]:
    """The measured peak memory is above the record's.

    Allowed is the record's peak and as much more as its own runs differed, at least 1 %.

    See what differs from the record; more memory here may not fit on another machine.
    """
    now, then = measured.peak_bytes, record.memory.get("peak_bytes")
    if now is None or then is None:
        return
    spread = then - (record.memory.get("peak_bytes_least") or then)
    allowed = then + max(spread, round(then * _LEAST_PEAK_BAND))
    if now > allowed:
        yield FATTER.finding(
            "memory.peak_bytes",
            f"{measured.evaluator} peak {format_gib(now)}, the record's is {format_gib(then)}; "
            f"allowed are {format_gib(allowed)}",
            suggestion="see what differs from the record, or measure the config anew with run",
        )


def not_measurable(reason: str) -> Iterator[Finding]:
    """`--measure` was asked for, and nothing was measured.

    A config in which the gate finds errors is not run: it would not start, or not fit.

    Mend what the other findings say, then measure.
    """
    yield NOT_MEASURED.finding("", f"nothing was measured: {reason}")


FAILED = RuleInfo.of(measured_failed, "measured-failed", Severity.ERROR)
SLOWER = RuleInfo.of(measured_slower, "measured-slower", Severity.ERROR)
FATTER = RuleInfo.of(measured_fatter, "measured-fatter", Severity.ERROR)
NOT_MEASURED = RuleInfo.of(not_measurable, "not-measured", Severity.ERROR)
RULE_INFOS: Sequence[RuleInfo] = (FAILED, SLOWER, FATTER, NOT_MEASURED)


def noise_band(record: Record, *, num_new: int) -> float | None:
    """Return by what share the mean of new runs may lie below the record's; None if unknown.

    The record's interval is t s / sqrt(n) wide on either side; that of the difference to a mean of
    k new runs is t s sqrt(1 / n + 1 / k).
    """
    recorded = record.tokens_per_s
    if record.num_runs < 2 or not math.isfinite(recorded.low):
        return None
    half_width = 1 - recorded.low / recorded.mean
    return half_width * math.sqrt(1 + record.num_runs / num_new)


def _ceiling_bytes(record: Record, device_bytes: int) -> int:
    recorded = record.memory.get("ceiling_bytes")
    return min(recorded or int(device_bytes * _CEILING_SHARE), device_bytes)
