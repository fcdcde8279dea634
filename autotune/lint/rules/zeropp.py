"""ZeRO++: secondary partitions (hpZ), quantized weights and quantized gradients."""

from collections.abc import Iterator

from autotune.lint.config_values import ZERO, fault, flag, number, precision
from autotune.lint.finding import RefusedBy, Severity
from autotune.lint.rule import Fault, rule
from autotune.lint.subject import Subject

_HPZ = f"{ZERO}.zero_hpz_partition_size"
_GRADIENTS = f"{ZERO}.zero_quantized_gradients"
_WEIGHTS = f"{ZERO}.zero_quantized_weights"
_FROZEN = f"{ZERO}.zero_quantized_nontrainable_weights"
_SCATTER = f"{ZERO}.reduce_scatter"


def _hpz_size(subject: Subject) -> int | None:
    """Return the ranks of a secondary partition; None without one, or below stage 3."""
    size = number(subject, _HPZ)
    if subject.zero_stage != 3 or size is None or size <= 1 or size != int(size):
        return None
    return int(size)


def _divisors(number_: int) -> str:
    return ", ".join(str(n) for n in range(1, number_ + 1) if number_ % n == 0)


@rule("hpz-world-size", Severity.ERROR, refused_by=RefusedBy.INIT)
def hpz_world_size(subject: Subject) -> Iterator[Fault]:
    """The number of ranks is not a multiple of the secondary partition.

    `utils/groups.py: _create_zero_param_parallel_group` divides all ranks into groups of
    `zero_hpz_partition_size` and asserts that none is left over.

    Suggestion: use the number of GPUs of a node.
    """
    size, gpus = _hpz_size(subject), subject.launch.gpus
    if size is None or gpus is None or gpus < 1 or size > gpus or gpus % size == 0:
        return
    yield fault(
        subject,
        _HPZ,
        f"{gpus} GPUs are not a multiple of it",
        suggestion=f"use a divisor of {gpus}: {_divisors(gpus)}",
    )


@rule("hpz-node", Severity.WARNING)
def hpz_node(subject: Subject) -> Iterator[Fault]:
    """The secondary partition spans nodes, or is larger than the job.

    hpZ keeps a second copy of the weights, divided over the GPUs of a group, so that gathers stay
    on the node. A group that spans nodes still sends between them and costs the memory;
    `utils/groups.py: _create_zero_param_parallel_group` silently reduces a size above the number of
    ranks.

    Suggestion: use the number of GPUs of a node, or remove it on one node.
    """
    size, gpus, nodes = _hpz_size(subject), subject.launch.gpus, subject.launch.nodes
    if size is None or gpus is None or gpus < 1:
        return
    if size > gpus:
        yield fault(
            subject,
            _HPZ,
            f"there are {gpus} GPUs; DeepSpeed uses {gpus} instead",
            suggestion="use the number of GPUs of a node, or remove it on one node",
        )
    elif nodes and gpus % nodes == 0 and (gpus // nodes) % size:
        yield fault(
            subject,
            _HPZ,
            f"groups of {size} ranks span nodes of {gpus // nodes} GPUs",
            suggestion=f"use {gpus // nodes}, the GPUs of a node",
        )


@rule("quantized-gradients-reduce-scatter", Severity.ERROR, refused_by=RefusedBy.INIT)
def quantized_gradients_reduce_scatter(subject: Subject) -> Iterator[Fault]:
    """Quantized gradients are used without reduce-scatter.

    `runtime/zero/stage3.py: DeepSpeedZeroOptimizer_Stage3.__init__` asserts that `reduce_scatter`
    is on where gradients are quantized.

    Suggestion: remove `reduce_scatter` (it is on by default), or set it to true.
    """
    if subject.zero_stage != 3 or not flag(subject, _GRADIENTS):
        return
    if flag(subject, _SCATTER) is False:
        for mine, text in (
            (_SCATTER, f"{_GRADIENTS} needs it"),
            (_GRADIENTS, f"needs {_SCATTER}, which is false"),
        ):
            yield fault(
                subject,
                mine,
                text,
                suggestion=f"remove {_SCATTER} (it is on by default) or set it to true",
            )


@rule("quantized-weights-autocast", Severity.ERROR, refused_by=RefusedBy.INIT)
def quantized_weights_autocast(subject: Subject) -> Iterator[Fault]:
    """Quantized weights are combined with torch autocast.

    `runtime/torch_autocast.py: _validate_auto_cast_settings` refuses `torch_autocast` with
    `zero_quantized_weights`.

    Suggestion: switch one of them off; `bf16.enabled` does not need `torch_autocast`.
    """
    if flag(subject, _WEIGHTS) and flag(subject, "torch_autocast.enabled"):
        yield fault(
            subject,
            _WEIGHTS,
            "not supported with torch_autocast",
            suggestion="switch one of them off; bf16.enabled does not need torch_autocast",
        )


@rule("zeropp-stage", Severity.WARNING)
def zeropp_stage(subject: Subject) -> Iterator[Fault]:
    """ZeRO++ is configured below stage 3.

    Weights are divided at stage 3 only, so below it there is nothing to gather, and only
    `runtime/zero/stage3.py` reads these switches: the run trains without ZeRO++.

    Suggestion: use stage 3, or remove it.
    """
    stage = subject.zero_stage
    if stage is None or stage == 3:
        return
    asked = [key for key in (_WEIGHTS, _FROZEN, _GRADIENTS) if flag(subject, key)]
    if (number(subject, _HPZ) or 0) > 1:
        asked.append(_HPZ)
    for key in asked:
        yield fault(
            subject,
            key,
            f"acts at ZeRO stage 3 only, and the stage is {stage}",
            suggestion=f"set {ZERO}.stage to 3, or remove it",
        )


@rule("quantized-weights-bf16", Severity.WARNING)
def quantized_weights_bf16(subject: Subject) -> Iterator[Fault]:
    """bf16 weights are converted to fp16 before they are quantized.

    `runtime/zero/partition_parameters.py: CUDAQuantizer.quantize` converts to half first: values
    above 65504 become infinite. `zero_quantized_nontrainable_weights` goes further:
    `runtime/zero/stage3.py: quantize_nontrainable_params` accepts weights in fp16 only.

    Suggestion: train in fp16, or compare the losses of the first steps without it.
    """
    if subject.zero_stage != 3 or precision(subject) != "bf16":
        return
    for key in (_WEIGHTS, _FROZEN):
        if flag(subject, key):
            yield fault(
                subject,
                key,
                "the quantizer converts bf16 weights to fp16 first, which ends at 65504",
                suggestion="train in fp16, or compare the losses of the first steps without it",
            )


RULES = (
    hpz_world_size,
    hpz_node,
    quantized_gradients_reduce_scatter,
    quantized_weights_autocast,
    zeropp_stage,
    quantized_weights_bf16,
)
