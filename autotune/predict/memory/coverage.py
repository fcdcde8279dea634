"""What the measured rows cover; a bill names everything that they do not.

Rows: one H200, bf16 with Adam, LLaMA shapes of 160M to 70B, stages 1 to 3, CPU offload, 1 to 64
ranks, fused attention, accumulation of 1 and 2 without offload.
"""

from autotune.predict.training import Training

MEASURED_MARGIN = 0.01
"""Of the limit under which a job is predicted to run."""
UNMEASURED_MARGIN = 0.08
"""The same where something was never measured."""

_FAMILIES = frozenset({"llama", "mistral"})
FRAGMENTATION_MARGIN = 0.12
"""What the closed form adds: limits lie this far above the allocated peak in the middle of the
measured jobs (2 % without little ones, 45 % at stage 3 with many ranks); a replay knows better."""


def unmeasured(training: Training) -> tuple[str, ...]:
    """Return what no measured row has, one short phrase each."""
    zero, shape = training.zero, training.model
    offload, params = zero.offload_optimizer, zero.offload_param
    accumulates = training.accumulation > 1
    found = {
        f"precision {training.precision}": training.precision != "bf16",
        "gradient sums in a wider type": training.accumulation_bytes != training.element_bytes,
        "gradients sent in another type": training.communication_bytes != training.element_bytes,
        "16-bit master weights": training.master_bytes == 2,
        "an optimizer other than Adam": training.num_moments != 2 or training.foreach_optimizer,
        "stage 0": zero.stage == 0,
        f"model family {shape.model_type}": shape.model_type not in _FAMILIES,
        "tied embeddings": shape.tie_word_embeddings,
        "mixture of experts": bool(
            shape.hf_config.get("num_local_experts") or shape.hf_config.get("num_experts")
        ),
        "frozen parameters": training.trainable_parameters is not None,
        "eager attention": training.attn_implementation == "eager",
        "accumulation with offload": accumulates and offload.enabled,
        "NVMe offload": "nvme" in (offload.device, params.device),
        "parameter offload alone": params.enabled and not offload.enabled,
        "partial offload": offload.enabled and offload.ratio < 1,
        "unpinned offload": offload.enabled and not offload.pin_memory,
        "ZeRO++": zero.stage == 3
        and (zero.hpz_partition_size > 1 or zero.quantized_weights or zero.quantized_gradients),
        "contiguous_gradients false": zero.stage > 0 and not zero.contiguous_gradients,
        "reduce_scatter false": zero.stage > 0 and not zero.reduce_scatter,
        "overlap_comm false at stage 3": zero.stage == 3 and not zero.overlap_comm,
        "round_robin_gradients": zero.stage in (1, 2) and zero.round_robin_gradients,
    }
    return tuple(name for name, is_there in found.items() if is_there)


def margin(training: Training) -> float:
    """Return how far a peak may lie above its prediction, relative to it."""
    return UNMEASURED_MARGIN if unmeasured(training) else MEASURED_MARGIN
