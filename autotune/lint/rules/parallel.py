"""Pipeline, tensor and sequence parallelism, checked against ZeRO and the number of GPUs."""

from collections.abc import Iterator

from autotune.lint.config_values import ZERO, fault, number
from autotune.lint.finding import RefusedBy, Severity
from autotune.lint.rule import Fault, rule
from autotune.lint.subject import Subject

_AUTOTP = "tensor_parallel.autotp_size"
_TP = "tensor_parallel.tp.tp_size"
_SEQUENCE = "sequence_parallel_size"
_DATA = "data_parallel_size"


@rule("pipeline-zero-stage", Severity.ERROR, refused_by=RefusedBy.INIT)
def pipeline_zero_stage(subject: Subject) -> Iterator[Fault]:
    """Pipeline parallelism is combined with ZeRO stage 2 or 3.

    `runtime/pipe/engine.py: PipelineEngine.__init__` asserts a stage below 2: micro batches pass
    the pipeline between two reductions, so gradients (2) and weights (3) cannot be partitioned.

    Suggestion: use stage 1.
    """
    stages = subject.launch.pipeline_stages
    if stages is not None and stages > 1 and subject.zero_stage in (2, 3):
        yield fault(
            subject,
            f"{ZERO}.stage",
            f"{stages} pipeline stages work with ZeRO stages 0 and 1 only",
            suggestion="set it to 1",
        )


@rule("tensor-parallel-size", Severity.ERROR, refused_by=RefusedBy.INIT)
def tensor_parallel_size(subject: Subject) -> Iterator[Fault]:
    """The two sizes of tensor parallelism differ, or do not divide the GPUs.

    `runtime/engine.py: _apply_autotp_partitioning` refuses a `tensor_parallel.tp.tp_size` that is
    neither 1 nor `autotp_size`; `utils/groups.py: _init_tp_mesh_device` divides all ranks into
    groups of that size.

    Suggestion: set `autotp_size` alone, to a power of two that divides the GPUs of a node.
    """
    size, tp_size, gpus = number(subject, _AUTOTP), number(subject, _TP), subject.launch.gpus
    if size is None or size <= 1:
        return
    if tp_size is not None and tp_size not in (1, size):
        yield fault(
            subject,
            _TP,
            f"must be {_AUTOTP}, which is {size:g}",
            suggestion="remove it: autotp_size is enough",
        )
    if gpus is not None and gpus % size:
        yield fault(
            subject,
            _AUTOTP,
            f"must divide the {gpus} GPUs",
            suggestion="use a power of two that divides the GPUs of a node",
        )


@rule("tensor-parallel-off", Severity.WARNING)
def tensor_parallel_off(subject: Subject) -> Iterator[Fault]:
    """Tensor parallelism is configured but not switched on.

    Training reads `tensor_parallel.autotp_size` alone (`runtime/engine.py: autotp_size`); with 0 or
    1 the model is not divided, whatever `tensor_parallel.tp.tp_size` is.

    Suggestion: set `tensor_parallel.autotp_size`.
    """
    size, tp_size = number(subject, _AUTOTP), number(subject, _TP)
    if size is not None and size <= 1 and tp_size is not None and tp_size > 1:
        yield fault(
            subject,
            _TP,
            f"without {_AUTOTP} the model is not divided",
            suggestion=f"set {_AUTOTP} to {tp_size:g}",
        )


@rule("tensor-parallel-heads", Severity.WARNING)
def tensor_parallel_heads(subject: Subject) -> Iterator[Fault]:
    """There are more tensor-parallel ranks than key-value heads.

    `runtime/engine.py: _apply_autotp_partitioning` warns: ranks beyond the number of heads hold no
    part of the attention.

    Suggestion: use at most as many ranks as key-value heads.
    """
    size, model = number(subject, _AUTOTP), subject.launch.model
    if size is not None and model is not None and size > model.num_key_value_heads:
        yield fault(
            subject,
            _AUTOTP,
            f"the model has {model.num_key_value_heads} key-value heads; the other ranks idle",
            suggestion=f"use at most {model.num_key_value_heads}",
        )


@rule("sequence-parallel-size", Severity.ERROR, refused_by=RefusedBy.INIT)
def sequence_parallel_size(subject: Subject) -> Iterator[Fault]:
    """Sequence-parallel ranks do not divide the GPUs, or the mesh does not use all of them.

    With `sequence_parallel_size` and `data_parallel_size` `__init__.py: initialize` arranges all
    ranks in a mesh of these sizes; torch refuses one larger than the job, and a smaller one leaves
    ranks out. With `sequence_parallel_size` alone the rest are the data-parallel ranks.

    Suggestion: use sizes whose product is the number of GPUs.
    """
    sequence, data, gpus = number(subject, _SEQUENCE), number(subject, _DATA), subject.launch.gpus
    if not sequence or sequence < 1 or not gpus:
        return
    if data and data >= 1:
        if sequence * data != gpus:
            yield fault(
                subject,
                _SEQUENCE,
                f"times {_DATA}={data:g} is {sequence * data:g}, and there are {gpus} GPUs",
                suggestion="make the product equal to the number of GPUs",
            )
    elif gpus % sequence:
        yield fault(
            subject,
            _SEQUENCE,
            f"must divide the {gpus} GPUs",
            suggestion="use a divisor of the number of GPUs",
        )


RULES = (
    pipeline_zero_stage,
    tensor_parallel_size,
    tensor_parallel_off,
    tensor_parallel_heads,
    sequence_parallel_size,
)
