"""A estimate that is too large, in one sentence."""

from autotune.gate.fit.job import Job, is_assumed
from autotune.gate.fit.memory_fit import Judged
from autotune.job.ceiling import GIB
from autotune.predict.memory.verdict import Room
from autotune.predict.training_job import ModelSettings


def device_words(job: Job, judged: list[Judged], telling: Judged) -> str:
    """Return what is wrong with device memory.

    Args:
        job: the job.
        judged: what was tried, one for each thing that may be set in the model.
        telling: the one of them that the verdict hangs on.
    """
    device = telling.estimate.device
    size = (
        f"predicted {telling.needed_bytes / GIB:.1f} GiB a rank "
        f"({telling.low_bytes / GIB:.1f} to {telling.high_bytes / GIB:.1f}), and "
        f"{job.device.name} has {job.device.memory_bytes / GIB:.1f} GiB"
    )
    largest = sorted(device.items.items(), key=lambda item: -item[1])[:2]
    most = ", ".join(f"{name.replace('_', ' ')} {bytes_ / GIB:.1f}" for name, bytes_ in largest)
    return f"{_claim(job, judged, telling)}: {size}; most is {most}, in the {device.part}"


def _claim(job: Job, judged: list[Judged], telling: Judged) -> str:
    fitting = next((one for one in judged if one.device is Room.FITS), None)
    if fitting is not None:
        need = f"{fitting.needed_bytes / GIB:.1f} GiB"
        return (
            f"fits only {_words(fitting.settings)} (predicted {need}); {_words(telling.settings)}"
        )
    tight = next((one for one in judged if one.device is Room.TIGHT), None)
    if tight is not None and telling.device is Room.TOO_LARGE:
        need = f"{tight.needed_bytes / GIB:.1f} GiB"
        return (
            f"may fit, and only {_words(tight.settings)} (predicted {need}); "
            f"{_words(telling.settings)}"
        )
    if telling.device is Room.TOO_LARGE:
        even = " even" if len(job.settings) > 1 else ""
        return f"device memory does not suffice{even} {_words(telling.settings)}"
    if telling.needed_bytes < job.device.memory_bytes and not is_assumed(telling.training):
        return "device memory may not suffice once it is fragmented"
    return "device memory may not suffice"


def _words(settings: ModelSettings) -> str:
    checkpointing = (
        f"{'with' if settings.activation_checkpointing else 'without'} activation checkpointing"
    )
    if settings.trained_on_top:
        return "with the trained parameters on top of the frozen ones"
    if settings.trainable_parameters is not None:
        return f"with adapters in every layer and {checkpointing}"
    return checkpointing


def host_words(judged: Judged) -> str:
    """Return what is wrong with host memory."""
    host = judged.estimate.host
    assert host.ceiling_bytes is not None
    verb = "does not suffice" if judged.host is Room.TOO_LARGE else "may not suffice"
    low, middle, high = (
        host.total_bytes * (1 + error) / GIB for error in (-host.margin, 0, host.margin)
    )
    return (
        f"host memory {verb}: predicted {middle:.0f} GiB a node ({low:.0f} to {high:.0f}) for "
        f"{host.local_ranks} x {host.rank_bytes / GIB:.1f} GiB of its ranks, and it has "
        f"{host.ceiling_bytes / GIB:.0f} GiB"
    )
