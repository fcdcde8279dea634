"""Offload to NVMe: paths, buffers and asynchronous I/O."""

from collections.abc import Iterator

from autotune.lint.config_values import (
    ZERO,
    fault,
    flag,
    number,
    offload_device,
    precision,
    value_of,
)
from autotune.lint.finding import RefusedBy, Severity
from autotune.lint.optimizers import configured_optimizer
from autotune.lint.rule import Fault, rule
from autotune.lint.subject import Subject

_OPTIMIZER = f"{ZERO}.offload_optimizer"
_PARAM = f"{ZERO}.offload_param"
_SECTOR_BYTES = 512
_SMALLEST_SWAPPED_BYTES = 1024**2
"""`runtime/swap_tensor/utils.py: MIN_AIO_BYTES`."""
_USUAL_EMBEDDING = 32_000 * 4_096
"""Elements of LLaMA-7B's embedding. Smaller models do not need NVMe."""
_SMALL_EMBEDDING = 50_272 * 2_048
"""Elements of OPT-1.3B's embedding, the smallest model for which NVMe is plausible."""
_ADAM_BUFFERS = {"adam": 4, "adamw": 4, "lion": 3, "adagrad": 3}
"""A parameter's master weights, its optimizer states and its gradient."""


def _swaps(subject: Subject, what: str) -> bool:
    return subject.zero_stage == 3 and offload_device(subject, what) == "nvme"


@rule("nvme-path", Severity.ERROR, refused_by=RefusedBy.INIT)
def nvme_path(subject: Subject) -> Iterator[Fault]:
    """Offload to NVMe without a path.

    `nvme_path` has no default. For parameters `runtime/zero/partition_parameters.py:
    _validate_remote_device` asserts that it is set; for the optimizer `runtime/zero/stage3.py:
    _configure_tensor_swapping` joins it to a path and raises a bare TypeError.

    Suggestion: name a folder on a local NVMe drive, such as "/local_nvme".
    """
    for what, section in (("param", _PARAM), ("optimizer", _OPTIMIZER)):
        key = f"{section}.nvme_path"
        if _swaps(subject, what) and subject.value(key) is None:
            yield fault(
                subject,
                key,
                f'{section}.device is "nvme", which needs a folder to write to',
                suggestion='name a folder on a local NVMe drive, such as "/local_nvme"',
            )


def _largest_parameter(subject: Subject) -> int | None:
    """Return the elements of the largest parameter; None if not known."""
    launch = subject.launch
    if launch.largest_parameter is not None or launch.model is None:
        return launch.largest_parameter
    model = launch.model
    return model.hidden_size * max(model.vocab_size, model.intermediate_size)


@rule("nvme-buffer-size", Severity.ERROR, refused_by=RefusedBy.INIT)
def nvme_buffer_size(subject: Subject) -> Iterator[Fault]:
    """A buffer for parameters on NVMe is smaller than the largest parameter.

    `runtime/swap_tensor/partitioned_param_swapper.py: get_buffer` asserts that a rank's part of
    each parameter fits one buffer of `offload_param.buffer_size` elements (1e8 by default). The
    largest one is usually the embedding: vocabulary x hidden size, divided by the ranks. Without a
    model the rule warns where the embedding of a 7B model would not fit, and reports an error where
    not even that of a 1.3B model with 50,000 tokens would.

    Suggestion: set it to at least vocabulary x hidden size / ranks.
    """
    key, ranks = f"{_PARAM}.buffer_size", subject.launch.data_parallel
    size, known = number(subject, key), _largest_parameter(subject)
    if not _swaps(subject, "param") or size is None or ranks is None or ranks < 1:
        return
    part = -(-(_USUAL_EMBEDDING if known is None else known) // ranks)
    surely = known is not None or size * ranks < _SMALL_EMBEDDING
    width_bytes = 4 if precision(subject) == "fp32" else 2
    least_bytes = max(_SMALLEST_SWAPPED_BYTES, number(subject, "aio.block_size") or 0)
    # A tensor smaller than one file access stays in host memory.
    if part <= size or part * width_bytes < least_bytes:
        return
    whose = "the largest parameter" if known is not None else "the embedding of a 7B model"
    yield fault(
        subject,
        key,
        f"{whose} has {part} elements on each of {ranks} ranks, and must fit one buffer",
        suggestion=f"set it to {part} or more: vocabulary x hidden size / ranks",
        severity=None if surely else Severity.WARNING,
    )


@rule("nvme-buffer-count", Severity.ERROR, refused_by=RefusedBy.INIT)
def nvme_buffer_count(subject: Subject) -> Iterator[Fault]:
    """There are too few buffers for the tensors on NVMe.

    Each parameter in use occupies a buffer (`runtime/swap_tensor/partitioned_param_swapper.py:
    get_buffer`). A step of the optimizer needs one for the master weights, each state and the
    gradient, four for Adam (`partitioned_optimizer_swapper.py: swap_in_optimizer_state`);
    `pipeline_read` and `pipeline_write` each keep another such set in flight as soon as a rank has
    more than one sub-group.

    Suggestion: raise `buffer_count`, or switch `pipeline_read` and `pipeline_write` off.
    """
    key = f"{_PARAM}.buffer_count"
    if _swaps(subject, "param") and number(subject, key) == 0:
        yield fault(subject, key, "parameters need a buffer each", suggestion="5 is the default")
    if not _swaps(subject, "optimizer"):
        return
    key = f"{_OPTIMIZER}.buffer_count"
    count, needed = number(subject, key), _ADAM_BUFFERS.get(configured_optimizer(subject) or "")
    if count is None or needed is None:
        return
    if count < needed:
        yield fault(
            subject,
            key,
            f"this optimizer swaps {needed} tensors for each sub-group",
            suggestion=f"set it to {needed} or more",
        )
    elif _has_sub_groups(subject):
        switches = ("pipeline_read", "pipeline_write")
        sets = 1 + sum(bool(flag(subject, f"{_OPTIMIZER}.{switch}")) for switch in switches)
        if count < needed * sets:
            yield fault(
                subject,
                key,
                f"{sets} sub-groups are in flight at a time, of {needed} tensors each",
                suggestion=f"set it to {needed * sets}, or switch pipeline_read and "
                "pipeline_write off",
                severity=Severity.WARNING,
            )


def _has_sub_groups(subject: Subject) -> bool:
    """Whether a rank is known to step more than one sub-group."""
    launch = subject.launch
    parameters = launch.num_trainable or launch.num_parameters
    size, ranks = number(subject, f"{ZERO}.sub_group_size"), launch.data_parallel
    return bool(parameters and ranks and size and parameters / ranks > size)


@rule("aio-value", Severity.ERROR, refused_by=RefusedBy.INIT)
def aio_value(subject: Subject) -> Iterator[Fault]:
    """A size or count in the aio section is not positive.

    DeepSpeed does not check the section (`runtime/swap_tensor/aio_config.py: get_aio_config`) and
    passes it to its C++ file access, which needs positive sizes.

    Suggestion: remove it for DeepSpeed's default.
    """
    if not (_swaps(subject, "param") or _swaps(subject, "optimizer")):
        return
    for name in ("block_size", "queue_depth", "intra_op_parallelism"):
        value = number(subject, f"aio.{name}")
        if value is not None and value < 1:
            yield fault(
                subject,
                f"aio.{name}",
                "must be at least 1",
                suggestion="remove it for DeepSpeed's default",
            )


@rule("aio-alignment", Severity.WARNING)
def aio_alignment(subject: Subject) -> Iterator[Fault]:
    """`aio.block_size` is not a multiple of the disk's sector size.

    `csrc/aio/common/deepspeed_aio_common.cpp: open_file` opens files with O_DIRECT, which reads and
    writes whole sectors only.

    Suggestion: 1048576 is DeepSpeed's default.
    """
    size = number(subject, "aio.block_size")
    swapped = _swaps(subject, "param") or _swaps(subject, "optimizer")
    if swapped and size is not None and size >= 1 and size % _SECTOR_BYTES:
        yield fault(
            subject,
            "aio.block_size",
            f"must be a multiple of {_SECTOR_BYTES} bytes for direct access",
            suggestion="1048576 is DeepSpeed's default",
        )


@rule("gds-device", Severity.NOTE)
def gds_device(subject: Subject) -> Iterator[Fault]:
    """GPUDirect Storage is switched on.

    `runtime/swap_tensor/aio_config.py: get_aio_config` asserts a CUDA device, and the op needs
    NVIDIA's cufile library on every node.

    Suggestion: check with `ds_report`, or remove it.
    """
    if value_of(subject, "aio.use_gds") is True:
        yield fault(
            subject,
            "aio.use_gds",
            "needs CUDA and NVIDIA's cufile library on every node",
            suggestion="check with ds_report, or remove it",
        )


RULES = (nvme_path, nvme_buffer_size, nvme_buffer_count, aio_value, aio_alignment, gds_device)
