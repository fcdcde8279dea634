"""Whether a job fits in memory: the one place that decides, for `plan`, `gate` and Python."""

from dataclasses import dataclass
from typing import Any

from autotune.errors import AutotuneError, NotJudgedError
from autotune.job.resolve import ResolvedJob
from autotune.planning.planned_job import PlannedJob, planned_job
from autotune.predict.memory.fit import SURE, UNLIKELY, Answer, Fit

_CHECKPOINTING = "--activation-checkpointing or --no-activation-checkpointing"
_LARGEST_BYTES = 2**70
_TOO_LARGE = "memory is not judged: a size is larger than any device"
_SETTLING = {"seq_len": "--seq-len", "micro_batch_size": "--hf-args or a micro batch"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAnswer:
    """Fits, does not fit, or not judged, with the predictions that decide it."""

    answer: Answer
    reason: str | None = None
    """Why it is not judged."""
    settle: tuple[str, ...] = ()
    """Options that would decide it."""
    job: PlannedJob | None = None
    """None where nothing could be predicted."""
    fits: tuple[Fit, ...] = ()
    """One prediction per possible setting of the model; the smallest first."""
    shown: Fit | None = None
    """The prediction that decides the answer."""

    @property
    def is_near_edge(self) -> bool:
        """Whether the prediction's error decides, or only the default ceiling is exceeded."""
        if self.shown is None or self.job is None:
            return False
        uncertain = UNLIKELY < self.shown.odds < SURE
        close = self.shown.is_pressed or self.is_above_ceiling
        return uncertain or (self.answer is Answer.FITS and close)

    @property
    def is_above_ceiling(self) -> bool:
        """Whether the prediction exceeds the ceiling; a job may run above a default ceiling."""
        if self.shown is None or self.job is None:
            return False
        ceiling_bytes = self.job.site.ceiling_bytes
        return ceiling_bytes is not None and self.shown.predicted_bytes > ceiling_bytes

    @property
    def odds(self) -> float | None:
        """Probability that memory suffices; None where nothing is predicted."""
        return None if self.shown is None else self.shown.odds

    @property
    def assumed(self) -> tuple[str, ...]:
        """Facts that no source states, a phrase each."""
        return () if self.job is None else self.job.assumed

    def to_json(self) -> dict[str, Any] | None:
        """Return plain JSON values: `memory` of plan and gate; None where nothing is predicted."""
        if self.shown is None or self.job is None:
            return None
        estimate, site = self.shown.estimate.to_json(), self.job.site
        estimate["device"] |= {
            "fits": self.shown.device_answer is Answer.FITS,
            "odds": self.shown.device_odds,
            "ceiling_bytes": site.ceiling_bytes,
            "limit_bytes_of_device": site.limit_bytes,
        }
        estimate["host"]["odds"] = self.shown.host_odds
        return {
            "answer": self.answer.value,
            "odds": self.shown.odds,
            "near_edge": self.is_near_edge,
            "reason": self.reason,
            "settle": list(self.settle),
            "assumed": list(self.assumed),
            **estimate,
        }


def format_odds(odds: float | None) -> str:
    """Format odds as a percentage; near 0 or 1 as a bound."""
    if odds is None:
        return "unknown"
    if odds >= SURE:
        return f"over {SURE:.0%}"
    return f"under {UNLIKELY:.0%}" if odds <= UNLIKELY else f"about {odds:.0%}"


def judge_memory(resolved: ResolvedJob) -> MemoryAnswer:
    """Predict a job's memory and judge it.

    An unknown setting of the model is tried both ways. The job does not fit if neither way fits;
    it fits if both do and neither sequence length nor micro batch is assumed.
    """
    try:
        job = planned_job(resolved)
        return _judged(job)
    except NotJudgedError as error:
        return MemoryAnswer(answer=Answer.NOT_JUDGED, reason=str(error))
    except OverflowError:
        return MemoryAnswer(answer=Answer.NOT_JUDGED, reason=_TOO_LARGE)
    except AutotuneError as error:
        reason = f"memory is not judged: {error.faults[0]}"
        return MemoryAnswer(answer=Answer.NOT_JUDGED, reason=reason)


def _judged(job: PlannedJob) -> MemoryAnswer:
    fits = _tried(job)
    shown = _deciding(fits)
    if shown.predicted_bytes > _LARGEST_BYTES:
        return MemoryAnswer(answer=Answer.NOT_JUDGED, reason=_TOO_LARGE)
    settle = _open_facts(job, fits)
    answers = {fit.answer for fit in fits}
    if not settle:
        (answer,) = answers if len(answers) == 1 else (Answer.NOT_JUDGED,)
        reason = None
        if answer is Answer.NOT_JUDGED:
            reason = "memory is not judged: only the size of the model is known"
            settle = ("--model",)
        return MemoryAnswer(
            answer=answer, job=job, fits=fits, shown=shown, reason=reason, settle=settle
        )
    smallest = job.smallest()
    least = smallest.fit(job.settings[0])
    if least.answer is Answer.DOES_NOT_FIT:
        if shown.answer is not Answer.DOES_NOT_FIT or len(fits) > 1:
            shown, fits = least, (least,)
        return MemoryAnswer(answer=Answer.DOES_NOT_FIT, job=job, fits=fits, shown=shown)
    return MemoryAnswer(
        answer=Answer.NOT_JUDGED,
        reason=f"memory is not judged: give {' and '.join(settle)}",
        settle=settle,
        job=job,
        fits=fits,
        shown=shown,
    )


def _open_facts(job: PlannedJob, fits: tuple[Fit, ...]) -> tuple[str, ...]:
    """Return the options that could change the answer."""
    all_fit = all(fit.answer is Answer.FITS for fit in fits)
    found = []
    if job.resolved.is_open("seq_len"):
        found.append(_SETTLING["seq_len"])
    # The Trainer's default runs unless its arguments set another micro batch.
    if job.batch.origin is None or (job.batch.is_open and not all_fit):
        found.append(_SETTLING["micro_batch_size"])
    if len({fit.answer for fit in fits}) > 1:
        found.append(_CHECKPOINTING)
    return tuple(found)


def _tried(job: PlannedJob) -> tuple[Fit, ...]:
    """Predict the possible settings of the model that the answer needs; the smallest first."""
    smallest, *others = job.settings
    if len(others) != 1 or others[0].trained_on_top:
        return tuple(job.fit(settings) for settings in job.settings)
    # The other setting needs more of everything: if it fits, the smallest does too.
    largest, known = others[0], None
    device = job.screen(job.training(largest)).device
    if device.peak_allocated_bytes + device.outside_bytes <= job.limit_bytes:
        known = job.fit(largest)
        if known.answer is Answer.FITS:
            return (known,)
    first = job.fit(smallest)
    if first.answer is Answer.DOES_NOT_FIT:
        return (first,)
    return first, known or job.fit(largest)


def _deciding(fits: tuple[Fit, ...]) -> Fit:
    """Return the prediction that decides: the smallest if none fits, else the largest."""
    none_fits = all(fit.answer is Answer.DOES_NOT_FIT for fit in fits)
    pick = min if none_fits else max
    return pick(fits, key=lambda fit: fit.estimate.device.peak_allocated_bytes)
