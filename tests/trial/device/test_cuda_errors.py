"""Texts are those of torch 2.11, NCCL 2.28 and cuBLAS 13."""

import pytest
import torch
import torch.distributed as dist

from autotune.study.outcome import Phase
from autotune.trial.device.cuda_errors import is_device_fault, read_oom, requested_in_text
from autotune.trial.failure import examine
from autotune.trial.failure_kind import FailureKind

_FULL, _EMPTY = 10 << 20, 100 << 30
_HINT = "CUDA kernel errors might be asynchronously reported at some other API call."


def _cuda_error(number: int, what: str) -> torch.AcceleratorError:
    error = torch.AcceleratorError(f"CUDA error: {what}\n{_HINT}")
    error.error_code = number  # type: ignore[attr-defined]
    return error


_CUBLAS = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
_NCCL = "NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:94, "


@pytest.mark.parametrize(
    ("error", "free_bytes", "kind"),
    [
        (RuntimeError(_CUBLAS), _FULL, FailureKind.DEVICE_MEMORY),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), _FULL, FailureKind.DEVICE_MEMORY),
        (_cuda_error(2, "out of memory"), _FULL, FailureKind.DEVICE_MEMORY),
        # Pinned memory that the host did not have.
        (_cuda_error(2, "out of memory"), _EMPTY, FailureKind.HOST_MEMORY),
        (RuntimeError("CUDA error: out of memory"), _FULL, FailureKind.DEVICE_MEMORY),
        (
            dist.DistBackendError(_NCCL + "unhandled cuda error: Cuda failure 2 'out of memory'"),
            _FULL,
            FailureKind.DEVICE_MEMORY,
        ),
        (MemoryError(), _EMPTY, FailureKind.HOST_MEMORY),
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't "
                "allocate memory: you tried to allocate 13421772800 bytes. Error code 12"
            ),
            _EMPTY,
            FailureKind.HOST_MEMORY,
        ),
    ],
)
def test_memory_that_ran_out_outside_torchs_cuda_allocator_is_reported(
    error: BaseException, free_bytes: int, kind: FailureKind
) -> None:
    oom = read_oom(error, free_bytes=lambda: free_bytes)
    assert oom is not None
    assert oom.kind is kind
    assert oom.describe().startswith("out of memory")


def test_the_hosts_allocator_reports_the_requested_bytes() -> None:
    error = RuntimeError("DefaultCPUAllocator: ... you tried to allocate 1000 bytes. Error code 12")
    oom = read_oom(error, free_bytes=lambda: _EMPTY)
    assert oom is not None
    assert oom.asked_bytes == 1_000


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (
            _cuda_error(700, "an illegal memory access was encountered"),
            FailureKind.DEVICE,
            "illegal",
        ),
        (_cuda_error(214, "uncorrectable ECC error encountered"), FailureKind.DEVICE, "faulty"),
        (
            _cuda_error(46, "CUDA-capable device(s) is/are busy or unavailable"),
            FailureKind.DEVICE,
            "another process",
        ),
        (RuntimeError("CUDA error: device-side assert triggered"), FailureKind.DEVICE, "assert"),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`"),
            FailureKind.DEVICE,
            "EXECUTION_FAILED",
        ),
        (
            dist.DistBackendError(_NCCL + "ncclUnhandledCudaError: Call to CUDA function failed."),
            FailureKind.DEVICE,
            "ncclUnhandledCudaError",
        ),
        (
            dist.DistBackendError(
                _NCCL + "unhandled system error\nError while creating shared memory segment "
                "/dev/shm/nccl-x (size 9637888), error: No space left on device (28)"
            ),
            FailureKind.DEVICE,
            "/dev/shm",
        ),
        (
            dist.DistBackendError(_NCCL + "ncclRemoteError: A call failed possibly due to a "
                                  "network error or a remote process exiting prematurely."),
            FailureKind.PEER,
            "ncclRemoteError",
        ),
        (dist.DistNetworkError("Connection reset by peer"), FailureKind.PEER, "reset"),
        (ValueError("bucket"), FailureKind.INVALID, "bucket"),
        (RuntimeError("shapes differ"), FailureKind.ERROR, "shapes"),
    ],
)  # fmt: skip
def test_failures_other_than_memory_are_classified(
    error: BaseException, kind: FailureKind, says: str
) -> None:
    diagnosis = examine(error, Phase.INIT, None)
    assert diagnosis.kind is kind
    assert says in diagnosis.message
    assert diagnosis.needed_bytes is None


def test_a_fault_behind_another_exception_is_found() -> None:
    error = ValueError("could not read the loss")
    error.__context__ = _cuda_error(700, "an illegal memory access was encountered")
    assert examine(error, Phase.INIT, None).kind is FailureKind.DEVICE


def test_a_lost_connection_is_not_a_fault_of_the_device() -> None:
    assert not is_device_fault(dist.DistBackendError("Connection closed by peer"))


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has", 5 << 29),
        ("Tried to allocate 20.00 MiB.", 20 << 20),
        ("Tried to allocate 512 bytes.", 512),
        ("CUDA out of memory.", 0),
    ],
)
def test_what_was_asked_for_stands_in_the_text(text: str, num_bytes: int) -> None:
    assert requested_in_text(text) == num_bytes
