"""Tensor and pipeline parallelism with ZeRO, as in Megatron-DeepSpeed: one rank's part.

A tensor-parallel rank has its share of each matrix's columns or rows and all of the residual
stream; a pipeline stage has its share of the layers.
"""

from dataclasses import replace

from autotune.predict.links.communication import Group, collective_s
from autotune.predict.throughput.surroundings import SpeedSurroundings
from autotune.predict.training_job import Training


def rank_training(training: Training, surroundings: SpeedSurroundings) -> Training:
    """Return the job of one rank: the same data-parallel ranks, a part of the model."""
    tensor, stages = surroundings.tensor_parallel, surroundings.pipeline_stages
    if tensor == stages == 1:
        return training
    shape = training.model
    head = shape.attention_width // shape.num_attention_heads
    part = replace(
        shape,
        num_hidden_layers=max(shape.num_hidden_layers // stages, 1),
        intermediate_size=max(shape.intermediate_size // tensor, 1),
        num_attention_heads=max(shape.num_attention_heads // tensor, 1),
        num_key_value_heads=max(shape.num_key_value_heads // tensor, 1),
        vocab_size=max(shape.vocab_size // tensor, 1),
        hf_config=dict(shape.hf_config) | {"head_dim": head},
    )
    return replace(training, model=part)


def tensor_parallel_s(training: Training, surroundings: SpeedSurroundings) -> float:
    """Return the seconds of one micro step's all-reduces of the residual stream.

    Two a layer in forward, two in backward, two where it runs again; they do not overlap.

    Args:
        training: one rank's job.
        surroundings: what it runs on.
    """
    tensor = surroundings.tensor_parallel
    if tensor == 1 or surroundings.silent:
        return 0.0
    passes = 3 if training.activation_checkpointing else 2
    num_bytes = training.element_bytes * training.tokens * training.model.hidden_size
    one = collective_s("all_reduce", num_bytes, Group(ranks=tensor), surroundings.links)
    return 2 * passes * training.model.num_hidden_layers * one


def bubble(training: Training, surroundings: SpeedSurroundings) -> float:
    """Return how much longer a pipeline's micro steps take, since it has to fill and drain."""
    return (training.accumulation + surroundings.pipeline_stages - 1) / training.accumulation
