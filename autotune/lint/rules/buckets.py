"""Bucket sizes: alignment, and extreme values."""

from collections.abc import Iterator

from autotune.lint.config_values import ZERO, fault, is_set, number, place, uses_bf16_optimizer
from autotune.lint.finding import Fix, RefusedBy, Severity
from autotune.lint.rule import Fault, rule
from autotune.lint.subject import Subject

_REDUCE = f"{ZERO}.reduce_bucket_size"
_ALLGATHER = f"{ZERO}.allgather_bucket_size"
_SMALL_BUCKET = 5_000_000
"""Elements: a hundredth of DeepSpeed's default. A link needs about ten megabytes in flight."""
_MANY_COLLECTIVES = 1_000
"""Reductions a step above which their fixed cost is noticeable."""
_LARGE_BUCKET = 1_000_000_000
_FAR_LARGER = 10


@rule("allgather-bucket-alignment", Severity.ERROR, refused_by=RefusedBy.INIT)
def allgather_bucket_alignment(subject: Subject) -> Iterator[Fault]:
    """`allgather_bucket_size` is odd.

    `runtime/zero/stage_1_and_2.py: __init__` asserts that it is a multiple of 2 elements, which
    keeps NCCL's send buffers on 4-byte boundaries. Stage 3 does not read it.

    Suggestion: make it even.
    """
    size = number(subject, _ALLGATHER)
    if subject.zero_stage not in (1, 2) or uses_bf16_optimizer(subject):
        return
    if size is not None and size > 0 and size % 2 == 1:  # the type rule reports a fraction
        even = int(size) + 1
        yield fault(
            subject,
            _ALLGATHER,
            "must be even",
            suggestion=f"set it to {even}",
            fix=Fix(put={place(subject, _ALLGATHER): even}),
        )


@rule("small-reduce-bucket", Severity.WARNING)
def small_reduce_bucket(subject: Subject) -> Iterator[Fault]:
    """Gradients are reduced in very small buckets.

    Each bucket is one collective with a fixed cost (`runtime/zero/stage3.py:
    reduce_independent_p_g_buckets_and_remove_grads`). DeepSpeed's default is 5e8 elements, Hugging
    Face's "auto" the square of the hidden size. Below 5e6 a model of billions of parameters needs
    thousands of collectives a step. Small models are not reported.

    Suggestion: 5e7 to 5e8 elements. A bucket costs its size in memory, twice with `overlap_comm`.
    """
    size, launch = number(subject, _REDUCE), subject.launch
    if subject.zero_stage not in (1, 2, 3) or not is_set(subject, _REDUCE):
        return
    if size is None or not 0 < size < _SMALL_BUCKET:
        return
    parameters = launch.num_trainable or launch.num_parameters
    if parameters is None and launch.model is not None:
        parameters = launch.model.num_parameters
    if parameters is not None and parameters / size < _MANY_COLLECTIVES:
        return
    count = (
        f"{parameters / size:.0f} reductions a step"
        if parameters is not None
        else f"1/{5e8 / size:.0f} of the default, thousands of reductions a step in a large model"
    )
    yield fault(
        subject,
        _REDUCE,
        f"{size:g} elements make {count}",
        suggestion="try 5e7 to 5e8; a bucket costs its size in memory, twice with overlap_comm",
    )


@rule("large-reduce-bucket", Severity.NOTE)
def large_reduce_bucket(subject: Subject) -> Iterator[Fault]:
    """The bucket for gradients is many times larger than the model.

    Its buffer is allocated in full, whatever the model needs (`runtime/zero/stage_1_and_2.py:
    setup_buckets`), twice with `overlap_comm`.

    Suggestion: set it to the number of parameters.
    """
    size, launch = number(subject, _REDUCE), subject.launch
    parameters = launch.num_parameters
    if subject.zero_stage not in (1, 2, 3) or not size or not parameters:
        return
    if is_set(subject, _REDUCE) and size >= max(_LARGE_BUCKET, _FAR_LARGER * parameters):
        yield fault(
            subject,
            _REDUCE,
            f"{size:g} elements for a model of {parameters} parameters",
            suggestion=f"set it to {parameters}: the rest is allocated and never used",
        )


RULES = (allgather_bucket_alignment, small_reduce_bucket, large_reduce_bucket)
