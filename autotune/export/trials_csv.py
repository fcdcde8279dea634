"""`trials.csv`: raw step times and peaks, a row per trial and rank, confirmation runs included."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.search.confirm import run_label
from autotune.study.candidate import TrialRecord
from autotune.study.outcome import Outcome, Status
from autotune.study.rejection import Rejection
from autotune.study.view import StudyView, status_word

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "label",
    "trial",
    "source",
    "evaluator",
    "status",
    "tokens_per_s",
    "tokens_per_step",
    "accumulation",
    "timed_accumulation",
    "rank",
    "inner_s",
    "boundary_s",
    "host_loop_s",
    "losses",
    "peak_bytes",
    "host_bytes",
    "sm_clock_mhz",
    "clock_limits",
    "duration_s",
    "phase",
    "needed_bytes",
    "reason",
)

_COUNTS = (
    "trial",
    "tokens_per_step",
    "accumulation",
    "timed_accumulation",
    "rank",
    "peak_bytes",
    "host_bytes",
    "sm_clock_mhz",
    "needed_bytes",
)


def trials_table(study: StudyView) -> "pd.DataFrame":
    """Return one row per trial and rank; a trial without a measurement has one row.

    Proposals that were rejected before launch follow, with their predicted memory.

    `inner_s`, `boundary_s`, `host_loop_s` (seconds) and `losses` hold a number per optimizer step,
    separated by blanks; the first step is in `losses` only. `clock_limits` names the limits on a
    device's clock. Searched keys follow under their dotted names.
    """
    import pandas as pd

    rows = [row for label, record, outcome in _runs(study) for row in _rows(label, record, outcome)]
    rows += [_rejected_row(index, rejection) for index, rejection in enumerate(study.rejections)]
    keys = [parameter.key for parameter in study.setup.space.parameters]
    table = pd.DataFrame(rows, columns=[*COLUMNS, *keys])
    # Counts stay whole numbers where some rows have none.
    return table.astype(dict.fromkeys(_COUNTS, "Int64"))


def _runs(study: StudyView) -> Iterator[tuple[str, TrialRecord, Outcome]]:
    for record in study.records:
        if record.outcome is not None:
            yield f"trial-{record.number:04d}", record, record.outcome
    for confirmation in study.confirmations:
        for role, number, runs in (
            ("winner", confirmation.winner, confirmation.winner_runs),
            ("baseline", confirmation.baseline, confirmation.baseline_runs),
        ):
            if number is None or (role == "baseline" and number == confirmation.winner):
                continue
            for index, run in enumerate(runs):
                label = run_label(confirmation.winner, role, index)
                yield label, study.records[number], run


def _rows(label: str, record: TrialRecord, outcome: Outcome) -> Iterator[dict[str, Any]]:
    failure, measurement = outcome.failure, outcome.measurement
    common: dict[str, Any] = {
        "label": label,
        "trial": record.number,
        "source": record.candidate.source,
        "evaluator": outcome.evaluator,
        "status": status_word(record) if outcome is record.outcome else outcome.status.value,
        "duration_s": outcome.duration_s,
        **record.candidate.values,
    }
    if failure is not None:
        common |= {
            "phase": failure.phase,
            "needed_bytes": failure.needed_bytes,
            "reason": failure.reason,
            "rank": failure.rank,
        }
    if outcome.modelled is not None:
        common |= {
            "tokens_per_s": outcome.tokens_per_s.mean,
            "peak_bytes": outcome.peak_bytes,
        }
    if measurement is None:
        yield common
        return
    for rank in measurement.ranks:
        yield common | {
            "tokens_per_s": measurement.tokens_per_s.mean,
            "tokens_per_step": measurement.tokens_per_step,
            "accumulation": measurement.accumulation,
            "timed_accumulation": measurement.timed_accumulation,
            "rank": rank.rank,
            "inner_s": _numbers(rank.inner_s),
            "boundary_s": _numbers(rank.boundary_s),
            "host_loop_s": _numbers(rank.host_loop_s),
            "losses": _numbers(rank.losses),
            "peak_bytes": rank.peak_bytes,
            "host_bytes": rank.host_bytes,
            "sm_clock_mhz": rank.clocks.sm_clock_mhz_median if rank.clocks else None,
            "clock_limits": ", ".join(rank.clocks.limits) if rank.clocks else None,
        }


def _rejected_row(index: int, rejection: Rejection) -> dict[str, Any]:
    return {
        "label": f"rejected-{index:04d}",
        "source": rejection.candidate.source,
        "evaluator": EvaluatorKind.MODELLED.value,
        "status": Status.REJECTED.value,
        "needed_bytes": rejection.needed_bytes,
        "reason": rejection.reason,
        **rejection.candidate.values,
    }


def _numbers(values: Sequence[float]) -> str:
    return " ".join(repr(value) for value in values)
