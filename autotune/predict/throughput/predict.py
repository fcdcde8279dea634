"""A job's speed: micro steps on clocks, the optimizer step, and the uncertainty."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from autotune.predict.memory.summary import weigh
from autotune.predict.program.experts import expert_sizes
from autotune.predict.throughput.constants import RATES, Rates
from autotune.predict.throughput.module_visits import list_visits
from autotune.predict.throughput.parallel import bubble, rank_training, tensor_parallel_s
from autotune.predict.throughput.step import optimizer_s, weights_back_s
from autotune.predict.throughput.surroundings import SpeedSurroundings, check_speeds
from autotune.predict.throughput.timeline import Spans, Timeline
from autotune.predict.throughput.uncertainty import log_width
from autotune.predict.training_job import Training


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
    tflops_per_gpu: float
    """Model FLOPs, as `model_flops_per_token` counts them."""
    mfu: float
    """Of the device's dense peak."""
    links: str
    """The origin of the collectives' times: catalogue, probe, or both."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def predict_throughput(
    training: Training, surroundings: SpeedSurroundings, *, rates: Rates = RATES
) -> Throughput:
    """Predict the speed of a job.

    Args:
        training: the job.
        surroundings: what it runs on.
        rates: the model's constants.
    """
    items = step_items(training, surroundings, rates=rates)
    step_s = sum(items.values())
    tokens_per_s = training.world_size * training.accumulation * training.tokens / step_s
    factor = math.exp(log_width(training, surroundings, items))
    gpus = training.world_size * surroundings.tensor_parallel * surroundings.pipeline_stages
    flops_per_gpu = tokens_per_s * model_flops_per_token(training) / gpus
    return Throughput(
        tokens_per_s=tokens_per_s,
        tokens_per_s_low=tokens_per_s / factor,
        tokens_per_s_high=tokens_per_s * factor,
        step_s=step_s,
        items=items,
        tflops_per_gpu=flops_per_gpu / 1e12,
        mfu=flops_per_gpu / surroundings.device.flops(training.precision),
        links=surroundings.links.source_for(surroundings.group(training)),
    )


def model_flops_per_token(training: Training) -> float:
    """Return the operations that the model needs for a token, forward and backward.

    Six a weight (four where it is frozen), and 12 x layers x width x tokens for attention, masked
    or not; no recomputation (Chowdhery et al., PaLM, appendix B). Of experts those that a token
    visits.
    """
    shape = training.model
    sizes = expert_sizes(shape)
    active = sizes.per_token / sizes.num_experts if sizes else 1.0
    weights = sum(
        (6 if p.trainable else 4) * p.num_elements * (active if p.expert else 1.0)
        for p in weigh(training).parameters
    )
    attention = shape.num_hidden_layers * shape.attention_width * training.seq_len
    return weights + 12 * attention


def step_items(
    training: Training, surroundings: SpeedSurroundings, *, rates: Rates = RATES
) -> dict[str, float]:
    """Return the seconds of an optimizer step, itemised.

    `compute`: kernels of forward and backward; `launches`: the device waits for the host;
    `communication`: it waits for the wire, to other ranks or to the host; `optimizer`: the update.

    Args:
        training: the job.
        surroundings: what it runs on.
        rates: the model's constants.

    Raises:
        HardwareError: the device's speeds are unknown.
    """
    check_speeds(surroundings.device, training.precision)
    rates = rates.on_host(surroundings.host_slowness)
    part = rank_training(training, surroundings)
    visits = list_visits(part, surroundings.device)

    def micro_step(*, boundary: bool) -> Spans:
        return Timeline(part, surroundings, visits, rates=rates, boundary=boundary).run()

    last = micro_step(boundary=True)
    inner, repeats = last, part.accumulation - 1
    if repeats and (part.zero.stage < 2 or part.zero.offload_optimizer.enabled):
        inner = micro_step(boundary=False)
    stretch = bubble(part, surroundings)
    tensor_s = part.accumulation * tensor_parallel_s(part, surroundings)
    sent_s = last.communication + repeats * inner.communication + tensor_s
    return {
        "compute": stretch * (last.compute + repeats * inner.compute),
        "launches": stretch * (last.launches + repeats * inner.launches),
        "communication": stretch * sent_s + weights_back_s(part, surroundings),
        "optimizer": optimizer_s(part, surroundings, rates),
    }
