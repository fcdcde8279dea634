"""The part of a model that one device holds, in a shape that the memory model can replay."""

from dataclasses import replace

from autotune.errors import NotJudgedError
from autotune.job.assumed_shape import ASSUMED, assumed_shape
from autotune.job.model_shape import ModelShape, require_judgeable
from autotune.predict.program.families import HAND_WRITTEN


def shape_of_rank(
    shape: ModelShape, *, tensor_parallel: int, pipeline_stages: int
) -> tuple[ModelShape, tuple[str, ...]]:
    """Return the part of a model that one device holds, and the assumptions.

    Args:
        shape: the whole model.
        tensor_parallel: devices that split every matrix.
        pipeline_stages: devices that split the layers; the activations of the micro batches that
            are in flight are not counted.

    Raises:
        NotJudgedError: a part of the model is not modelled, or its family cannot be split.
    """
    require_judgeable(shape)
    assumed = []
    if shape.hf_config.get(ASSUMED):
        assumed.append(f"a LLaMA-like shape of {shape.name}")
    if tensor_parallel * pipeline_stages > 1:
        if shape.model_type not in HAND_WRITTEN:
            raise NotJudgedError(
                f"memory is not judged: how tensor parallelism or pipeline stages split "
                f"{shape.model_type} is not modelled (it is for {', '.join(sorted(HAND_WRITTEN))})"
            )
        assumed.append(
            f"layers and activations split evenly over {tensor_parallel} x {pipeline_stages} "
            "devices, and one micro batch in flight"
        )
    return _stage(_slice(shape, tensor_parallel), pipeline_stages), tuple(assumed)


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
