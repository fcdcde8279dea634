"""An estimate that is too large, in one sentence."""

from autotune.job.ceiling import GIB
from autotune.planning.memory_answer import MemoryAnswer, format_odds
from autotune.planning.planned_job import PlannedJob
from autotune.predict.memory.fit import UNLIKELY, Answer, Fit
from autotune.predict.training_job import Training


def device_message(answer: MemoryAnswer, job: PlannedJob, shown: Fit) -> str:
    """Return what is wrong with device memory, and what that rests on."""
    device = shown.estimate.device
    size = (
        f"predicted {shown.predicted_bytes / GIB:.1f} GiB a rank "
        f"({shown.low_bytes / GIB:.1f} to {shown.high_bytes / GIB:.1f}), and {_limit(job)}"
    )
    largest = sorted(device.items.items(), key=lambda item: -item[1])[:2]
    most = ", ".join(f"{name.replace('_', ' ')} {bytes_ / GIB:.1f}" for name, bytes_ in largest)
    message = f"{_claim(answer, shown)}: {size}; most is {most}, in the {device.part}"
    if answer.assumed:
        message += f" (assumed: {'; '.join(answer.assumed)})"
    return message


def _limit(job: PlannedJob) -> str:
    if job.site.ceiling_is_given:
        return f"the ceiling on {job.device.name} is {job.limit_bytes / GIB:.1f} GiB"
    return f"{job.device.name} has {job.limit_bytes / GIB:.1f} GiB"


def _claim(answer: MemoryAnswer, shown: Fit) -> str:
    how = model_settings(shown.training)
    if answer.answer is Answer.DOES_NOT_FIT:
        even = " even" if answer.job is not None and len(answer.job.settings) > 1 else ""
        odds = f", near the edge: the odds that it runs are {format_odds(shown.device_odds)}"
        near = odds if shown.device_odds > UNLIKELY else ""
        return f"device memory does not suffice{even} {how}{near}"
    fitting = next((fit for fit in answer.fits if fit.device_answer is Answer.FITS), None)
    if fitting is not None and fitting is not shown:
        need = f"{fitting.predicted_bytes / GIB:.1f} GiB"
        return f"fits only {model_settings(fitting.training)} (predicted {need}); {how}"
    if answer.answer is Answer.NOT_JUDGED:
        return answer.reason or "memory is not judged"
    pressed = ", by giving back the allocator's cache in every step" if shown.is_pressed else ""
    odds = format_odds(shown.device_odds)
    return f"near the edge: the odds that it runs are {odds}{pressed}"


def model_settings(training: Training) -> str:
    """Return what is set in the model, in words."""
    with_or_without = "with" if training.activation_checkpointing else "without"
    checkpointing = f"{with_or_without} activation checkpointing"
    if training.trained_on_top:
        return "with the trained parameters on top of the frozen ones"
    if training.trainable_parameters is not None:
        return f"with adapters in every layer and {checkpointing}"
    return checkpointing


def host_message(fit: Fit) -> str:
    """Return what is wrong with host memory."""
    host = fit.estimate.host
    assert host.ceiling_bytes is not None
    verb = "does not suffice" if fit.host_answer is Answer.DOES_NOT_FIT else "may not suffice"
    low, middle, high = (
        host.total_bytes * (1 + error) / GIB for error in (-host.margin, 0, host.margin)
    )
    return (
        f"host memory {verb}: predicted {middle:.0f} GiB a node ({low:.0f} to {high:.0f}) for "
        f"{host.local_ranks} x {host.rank_bytes / GIB:.1f} GiB of its ranks, and it has "
        f"{host.ceiling_bytes / GIB:.0f} GiB"
    )
