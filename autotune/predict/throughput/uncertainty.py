"""The uncertainty of a predicted speed: from the errors on measured runs, wider beyond them."""

import math
from collections.abc import Mapping

from autotune.predict.memory.error_margins import unmeasured
from autotune.predict.program.experts import expert_sizes
from autotune.predict.throughput.surroundings import SpeedSurroundings
from autotune.predict.training_job import Training

BASE = 0.2
"""Logarithmic half width that covers nine in ten of the runs on an H200, each predicted with
constants fitted to other models."""
PAIR = 0.17
"""The same for the ratio of two configs of one model on one pool: errors that both share cancel."""
_DEVICES = {"h200": 0.0, "h100-80gb": 0.1, "a100-80gb": 0.15, "a100-40gb": 0.15}
"""Families with published speeds, which are less certain."""
OTHER_DEVICE = 0.4
UNMEASURED = 0.15
"""A property of the job that no measured run has."""
FLASH_ATTENTION_2 = 0.22
"""Not measured here: its rate is its authors' claim, and published speeds at 8 and 32 thousand
tokens are up to a third lower."""
EXPERTS = 0.3
"""Mixture of experts: Hugging Face's loop over experts launches more kernels than the program
has."""
SPLIT_MODEL = 0.3
"""Tensor or pipeline parallelism: a few published speeds support it."""
UNKNOWN_LINKS = 0.5
"""Relative error of the catalogue's links, for the part of a step that waits for them."""
UNKNOWN_HOST = 0.6
"""The same for a host's single cores, and for its CPUAdam."""


def ratio_log_width(one: Mapping[str, float], other: Mapping[str, float], *, probed: bool) -> float:
    """Return how far the logarithm of the ratio of two configs' speeds may be off, either way.

    Args:
        one: seconds of a step of the one.
        other: of the other.
        probed: whether the links were measured.
    """
    shares = [items["communication"] / sum(items.values()) for items in (one, other)]
    unknown_links = 0.0 if probed else UNKNOWN_LINKS * (shares[0] - shares[1])
    return math.hypot(PAIR, unknown_links)


def log_width(
    training: Training, surroundings: SpeedSurroundings, items: dict[str, float]
) -> float:
    """Return how far the logarithm of the speed may be off, either way.

    Args:
        training: the job.
        surroundings: what it runs on; a probe makes its links known, and the host if as many ranks
        share it.
        items: seconds of a step.
    """
    step_s = sum(items.values())
    share = {name: seconds / step_s for name, seconds in items.items()}
    probed = surroundings.links.source_for(surroundings.group(training)) == "probe"
    offloads = training.zero.offload_optimizer.enabled
    known_adam = surroundings.cpu_threads_are_probed and surroundings.probed_as_shared(training)
    splits = surroundings.tensor_parallel > 1 or surroundings.pipeline_stages > 1
    widths = (
        BASE,
        _DEVICES.get(surroundings.device.name, OTHER_DEVICE),
        UNMEASURED if unmeasured(training) else 0.0,
        FLASH_ATTENTION_2 if training.attn_implementation == "flash_attention_2" else 0.0,
        SPLIT_MODEL if splits else 0.0,
        EXPERTS if expert_sizes(training.model) else 0.0,
        0.0 if probed else UNKNOWN_LINKS * share["communication"],
        UNKNOWN_HOST * share["launches"],
        UNKNOWN_HOST * share["optimizer"] if offloads and not known_adam else 0.0,
    )
    return math.hypot(*widths)
