"""Speed by a roofline: coarse, for plans without hardware; a trial says what is true.

A step is compute, the host's launches where those take longer, communication that is not hidden
behind them, and the optimizer. Rates were read off 72 runs on one H200 host; the interval is as
wide as the errors there, and wider for what those runs do not have.
"""

from dataclasses import asdict, dataclass
from typing import Any

from autotune.hardware import Device
from autotune.predict.memory.summary import weigh
from autotune.predict.training import Training

EFFICIENCY = 0.45
"""Of the dense peak, in large matrix products with everything around them."""
LAUNCH_S = 0.0018
"""A layer's pass, launched from Python, below stage 3."""
SHARDED_LAUNCH_S = 0.0095
"""The same with stage 3's hooks and gathers."""
CPU_ADAM_ELEMENTS_PER_S = 2.5e9
"""All ranks of a node together, 16 cores."""
NODE_LINK_BYTES_PER_S = 25e9
"""Between nodes, per device: one 200 Gbit/s port."""
HIDDEN = 0.7
"""Share of stage 3's and overlapped communication that hides behind compute."""
SPREAD = (0.55, 1.65)
"""Low and high over the middle: covers nine in ten of the runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """A predicted speed; never a measurement."""

    tokens_per_s: float
    """All ranks together."""
    tokens_per_s_low: float
    tokens_per_s_high: float
    step_s: float
    """One optimizer step."""
    items: dict[str, float]
    """Seconds of a step, adding up to `step_s`."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def predict_throughput(training: Training, device: Device, *, local_ranks: int) -> Throughput:
    """Predict the speed of a job.

    Args:
        training: the job.
        device: what every rank runs on.
        local_ranks: ranks that share a node.
    """
    compute = training.accumulation * _compute_s(training, device)
    launches = training.accumulation * _launch_s(training)
    busy = max(compute, launches)
    items = {
        "compute": compute,
        "launches": busy - compute,
        "communication": _communication_s(training, device, local_ranks, busy),
        "optimizer": _optimizer_s(training, device, local_ranks),
    }
    step_s = sum(items.values())
    tokens = training.world_size * training.accumulation * training.tokens
    rate = tokens / step_s
    return Throughput(
        tokens_per_s=rate,
        tokens_per_s_low=rate * SPREAD[0],
        tokens_per_s_high=rate * SPREAD[1],
        step_s=step_s,
        items=items,
    )


def _passes(training: Training) -> int:
    """Forward, backward (as two), and forward again with checkpointing."""
    return 4 if training.activation_checkpointing else 3


def _compute_s(training: Training, device: Device) -> float:
    """One micro step: two operations a weight, token and pass, and causal attention."""
    shape, weighted = training.model, weigh(training)
    weights = sum(p.num_elements for p in weighted.parameters) - weighted.embedding
    if shape.tie_word_embeddings:
        weights += weighted.embedding
    attention = shape.num_hidden_layers * shape.attention_width * training.seq_len
    operations = 2 * training.tokens * _passes(training) * (weights + attention)
    return operations / (EFFICIENCY * device.flops(training.precision))


def _launch_s(training: Training) -> float:
    passes = 3 if training.activation_checkpointing else 2
    sharded = training.zero.stage == 3
    per_pass = SHARDED_LAUNCH_S if sharded else LAUNCH_S
    return per_pass * passes * training.model.num_hidden_layers


def _communication_s(training: Training, device: Device, local_ranks: int, busy_s: float) -> float:
    """Ring collectives over the slower of the links that they cross."""
    ranks = training.world_size
    if ranks == 1:
        return 0.0
    weighted = weigh(training)
    weights = training.element_bytes * sum(p.num_elements for p in weighted.parameters)
    if training.zero.stage == 3:
        gathers = 3 if training.activation_checkpointing else 2
        volume = (gathers + 1) * weights * training.accumulation
    elif training.zero.stage == 2:
        volume = weights + 2 * weights * training.accumulation
    else:
        volume = 3 * weights
    link = device.link_bytes_per_s if ranks <= local_ranks else NODE_LINK_BYTES_PER_S
    total = volume * (ranks - 1) / ranks / (link or NODE_LINK_BYTES_PER_S)
    hides = training.zero.stage == 3 or training.zero.overlap_comm
    hidden = min(HIDDEN * total, busy_s) if hides else 0.0
    return total - hidden


def _optimizer_s(training: Training, device: Device, local_ranks: int) -> float:
    """Read and write every state once; on the CPU all local ranks share its cores."""
    ranks = training.world_size if training.zero.stage else 1
    elements = sum(p.num_elements for p in weigh(training).parameters if p.trainable) / ranks
    if training.zero.offload_optimizer.enabled:
        sharing = min(local_ranks, training.world_size)
        moved = 2 * training.element_bytes * elements / device.host_bytes_per_s
        return elements * sharing / CPU_ADAM_ELEMENTS_PER_S + moved
    moved_bytes = elements * (2 * 4 * (1 + training.num_moments) + 3 * training.element_bytes)
    return moved_bytes / device.memory_bytes_per_s
