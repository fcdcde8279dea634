"""The part of a model that one device holds, in a shape that the memory model can replay.

A family that nobody wrote down could be traced, which takes torch and seconds; the gate takes the
written one that is most alike, and says so.
"""

from dataclasses import replace

from autotune.job.assumed_shape import ASSUMED, assumed_shape
from autotune.job.model_shape import ModelShape
from autotune.predict.program.families import HAND_WRITTEN

_GATED = (
    "llama",
    "mistral",
    "qwen",
    "gemma",
    "phi3",
    "olmo",
    "cohere",
    "granite",
    "internlm",
    "baichuan",
    "deepseek",
    "stablelm",
    "glm",
    "yi",
)
"""Begin the names of families whose MLP has a gate, as LLaMA's; others have GPT's."""


_OTHER_EXPERTS = ("n_routed_experts", "moe_num_experts", "ffn_config")
"""Name experts in configs of families whose layers are too unlike those that were written down."""


class NotJudgedError(Exception):
    """Something that memory depends on is not known; never leaves `autotune.gate`."""


def shape_of_rank(
    shape: ModelShape, *, tensor_parallel: int, pipeline_stages: int
) -> tuple[ModelShape, tuple[str, ...]]:
    """Return what one device holds of a model, and what was assumed.

    Args:
        shape: the whole model.
        tensor_parallel: devices that split every matrix.
        pipeline_stages: devices that split the layers; the activations of the micro batches that
            are in flight are not counted.

    Raises:
        NotJudgedError: no family that was written down is like it.
    """
    assumed = []
    if shape.hf_config.get(ASSUMED):
        assumed.append(f"a LLaMA-like shape of {shape.name}")
    elif shape.model_type not in HAND_WRITTEN:
        family = shape.model_type
        if any(shape.hf_config.get(key) for key in _OTHER_EXPERTS):
            raise NotJudgedError(
                f"memory is not judged: the experts of {family} have to be traced, as "
                "`autotune plan` does"
            )
        shape = _most_alike(shape)
        assumed.append(f"{family} is like {shape.model_type} with the same dimensions")
    if tensor_parallel * pipeline_stages > 1:
        assumed.append(
            f"layers and activations split evenly over {tensor_parallel} x {pipeline_stages} "
            "devices, and one micro batch in flight"
        )
    return _stage(_slice(shape, tensor_parallel), pipeline_stages), tuple(assumed)


def _most_alike(shape: ModelShape) -> ModelShape:
    gated = shape.model_type.startswith(_GATED)
    config = {**shape.hf_config, ASSUMED: True}
    if gated:
        return replace(shape, model_type="llama", hf_config=config)
    # OPT's table of positions would end where this family's need not.
    return replace(shape, model_type="opt", max_position_embeddings=0, hf_config=config)


def _slice(shape: ModelShape, ways: int) -> ModelShape:
    """Return one of the equal parts of every matrix."""
    if ways == 1:
        return shape
    if shape.model_type in ("gpt2", "opt"):
        return assumed_shape(shape.num_parameters / ways)
    config = {**shape.hf_config, ASSUMED: True}
    config["head_dim"] = shape.attention_width // shape.num_attention_heads
    if expert_width := config.get("moe_intermediate_size"):
        config["moe_intermediate_size"] = -(-expert_width // ways)
    return replace(
        shape,
        num_attention_heads=-(-shape.num_attention_heads // ways),
        num_key_value_heads=-(-shape.num_key_value_heads // ways),
        intermediate_size=-(-shape.intermediate_size // ways),
        vocab_size=-(-shape.vocab_size // ways),
        hf_config=config,
    )


def _stage(shape: ModelShape, stages: int) -> ModelShape:
    """Return one pipeline stage; half the vocabulary, since no stage has embedding and head."""
    if stages == 1:
        return shape
    return replace(
        shape,
        num_hidden_layers=-(-shape.num_hidden_layers // stages),
        vocab_size=max(shape.vocab_size // 2, 1),
        hf_config={**shape.hf_config, ASSUMED: True},
    )
