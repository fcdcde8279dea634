"""`--measure`: runs the config and compares it with the record's numbers and their spread."""

import importlib.util
import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.ds_config.build import build_ds_config
from autotune.errors import GateError, HardwareError
from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.job.ceiling import format_gib, parse_ceiling
from autotune.job.site import DEFAULT_CEILING
from autotune.lint.finding import Finding, Severity
from autotune.lint.rule_info import RuleInfo
from autotune.lint.subject import Subject
from autotune.sigterm import interrupted_by_sigterm
from autotune.study.environment import THREADS_PER_RANK
from autotune.study.outcome import Outcome, Status
from autotune.study.record import Record

if TYPE_CHECKING:
    from autotune.evaluate import TrialRequest

NUM_RUNS = 2
"""Runs of whole optimizer steps; a single run cannot be distinguished from noise."""
_NEEDED = ("ray", "torch", "deepspeed", "transformers")
_TOO_NOISY = 0.5
"""A wider band decides nothing: too few runs, or a busy machine."""
_MIN_PEAK_BAND = 0.01
"""Peaks of one config may differ by this share although the recorded runs agree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The outcomes of the runs."""

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
        """Of the largest rank of all runs; None if one failed."""
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
    """Check that the record holds measured numbers and that runs are possible here.

    Raises:
        GateError: the record's numbers are modelled.
        HardwareError: a package is not installed.
    """
    if record.evaluator == EvaluatorKind.MODELLED:
        raise GateError(
            f"--measure: the numbers of {record.path} are modelled, nothing was run for them; "
            "give the record of a measured or emulated study"
        )
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise HardwareError(
            f"--measure: needs {', '.join(missing)}, which this environment lacks; install "
            "autotune with its dependencies"
        )


def measure(subject: Subject, record: Record, *, ray_address: str | None = None) -> Measured:
    """Run a config as the record's was run: same model, batch, ranks and evaluator.

    Model settings are those of the launch; a setting that it does not give is the record's.

    Raises:
        AutotuneError: the record or this environment does not allow it, the config cannot be made
            into a trial, the pool has too few devices, or the pool failed (`DispatchError`).
    """
    require_measurable(record)
    # Imported here: they import Ray, which the rest of the gate does not need.
    from autotune.evaluate.factory import make_evaluator
    from autotune.pool.pool import Pool, PoolRequest
    from autotune.predict.links.communication import Links

    workload, emulation = record.workload, record.emulation or {}
    pool_request = PoolRequest(
        world_size=workload.world_size,
        device_kind=str(record.environment.get("device_kind", "cuda")),
        model_type=workload.model.model_type,
        ray_address=ray_address,
        offers_emulation=False,
        emulate=record.emulation is not None,
    )
    links = emulation.get("links")
    requests = _trial_requests(subject, record)
    outcomes: list[Outcome] = []
    with (
        tempfile.TemporaryDirectory(prefix="autotune-gate-") as folder,
        interrupted_by_sigterm(),
        Pool(pool_request) as pool,
    ):
        evaluator = make_evaluator(
            pool,
            workload=workload,
            ceiling_bytes=_ceiling_bytes(record, pool.device_bytes),
            gpus_per_node=emulation.get("gpus_per_node"),
            seed=0,
            study_folder=Path(folder),
            num_threads=subject.launch.cpu_threads or record.environment.get(THREADS_PER_RANK),
            links=Links.from_json(links) if links else None,
        )
        for request in requests:
            outcomes.append(evaluator.evaluate(request, lambda *_: None))
            if outcomes[-1].status is not Status.COMPLETE:
                break
    return Measured(evaluator=record.evaluator, outcomes=tuple(outcomes))


def _trial_requests(subject: Subject, record: Record) -> list["TrialRequest"]:
    from autotune.evaluate import TrialRequest

    settings = dict(record.model_settings)
    if subject.launch.activation_checkpointing is not None:
        settings["activation_checkpointing"] = subject.launch.activation_checkpointing
    ds_config = build_ds_config(subject.config, record.workload, {})
    return [
        TrialRequest(
            number=number,
            label=f"gate-{number}",
            ds_config=ds_config,
            model_settings=settings,
            whole_steps=True,
            same_weights=True,
        )
        for number in range(NUM_RUNS)
    ]


def compare_measured(
    measured: Measured, record: Record, *, max_regression: float | None
) -> Iterator[Finding]:
    """Yield where the runs are worse than the record."""
    if (failed := measured.failed) is not None:
        yield from measured_failed(failed)
        return
    yield from measured_slower(measured, record, max_regression)
    yield from measured_peak_higher(measured, record)


def measured_failed(outcome: Outcome) -> Iterator[Finding]:
    """A run of `--measure` failed.

    It ran out of memory under the record's ceiling, DeepSpeed refused the config at `initialize`,
    or it crashed or hung.

    Suggestion: fix the cause in the message, then measure again.
    """
    failure = outcome.failure
    where = "" if failure is None or failure.phase is None else f" in {failure.phase}"
    why = "unknown reason" if failure is None else failure.reason
    yield FAILED.finding("", f"the measured run is {outcome.status}{where}: {why}")


def measured_slower(
    measured: Measured, record: Record, max_regression: float | None
) -> Iterator[Finding]:
    """The measured speed is below the record's noise band, by more than is allowed.

    The band is the record's 95 % interval of the mean of n runs, widened by sqrt(1 + n / k) for the
    mean of k new runs. Measured tokens/s below the band fail. With `--max-regression R` they fail
    only if they are below `record x (1 - R)` as well. A record of a single run has no band, and a
    band wider than half of the record's value decides nothing: without R both are a warning.

    Suggestion: check what else runs on the machine, then what the other findings report as changed.
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
            f"{then:,.0f}; at least {floor:,.0f} is allowed",
            suggestion="see the other findings, or measure the config with autotune run",
        )
    elif allowed > _TOO_NOISY and max_regression is None:
        why = "a single run has no noise band" if band is None else f"it is noisy by {band:.0%}"
        yield SLOWER.finding(
            "tokens_per_s",
            f"{record.path}: {why}, so {measured.evaluator} {now:,.0f} tokens/s cannot be compared "
            f"with its {then:,.0f}",
            suggestion="give the allowed loss with --max-regression 5%, or run the study again "
            "with more --confirm-rounds",
            severity=Severity.WARNING,
        )


def measured_peak_higher(measured: Measured, record: Record) -> Iterator[Finding]:
    """The measured peak memory is above the record's.

    The measured peak may exceed the record's by the difference between its own runs, at least 1 %.

    Suggestion: see the other findings; a higher peak may not fit on another machine.
    """
    now, then = measured.peak_bytes, record.memory.get("peak_bytes")
    if now is None or then is None:
        return
    spread = then - (record.memory.get("peak_bytes_least") or then)
    allowed = then + max(spread, round(then * _MIN_PEAK_BAND))
    if now > allowed:
        yield PEAK.finding(
            "memory.peak_bytes",
            f"{measured.evaluator} peak {format_gib(now)}, the record's is {format_gib(then)}; "
            f"at most {format_gib(allowed)} is allowed",
            suggestion="see the other findings, or measure the config with autotune run",
        )


def not_measurable(reason: str) -> Iterator[Finding]:
    """`--measure` is given, and nothing was measured.

    A config in which the gate finds errors is not run: it would not start, or not fit.

    Suggestion: fix the other findings, then measure.
    """
    yield NOT_MEASURED.finding("", f"nothing was measured: {reason}")


FAILED = RuleInfo.of(measured_failed, "measured-failed", Severity.ERROR)
SLOWER = RuleInfo.of(measured_slower, "measured-slower", Severity.ERROR)
PEAK = RuleInfo.of(measured_peak_higher, "measured-fatter", Severity.ERROR)
NOT_MEASURED = RuleInfo.of(not_measurable, "not-measured", Severity.ERROR)
RULE_INFOS: Sequence[RuleInfo] = (FAILED, SLOWER, PEAK, NOT_MEASURED)


def noise_band(record: Record, *, num_new: int) -> float | None:
    """Return the share by which the mean of new runs may be below the record's; None if unknown.

    The record's interval has half width t s / sqrt(n); that of the difference to a mean of k new
    runs has t s sqrt(1 / n + 1 / k).
    """
    recorded = record.tokens_per_s
    if record.num_runs < 2 or not math.isfinite(recorded.low):
        return None
    half_width = 1 - recorded.low / recorded.mean
    return half_width * math.sqrt(1 + record.num_runs / num_new)


def _ceiling_bytes(record: Record, device_bytes: int) -> int:
    recorded = record.memory.get("ceiling_bytes")
    default = parse_ceiling(DEFAULT_CEILING, device_bytes=device_bytes)
    return min(recorded or default, device_bytes)
