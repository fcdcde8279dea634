"""What the driver is given for a launch; the kernels themselves are tested on a GPU."""

import ctypes
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from autotune.trial.timed_group.kernel import Kernel

FUNCTION, STREAM = 7, 9


class Driver:
    """Takes a launch as libcuda does: reads the parameters where the array points to."""

    def __init__(self) -> None:
        self.code = 0
        self.launches: list[tuple[Any, ...]] = []
        self.cuLaunchKernel = self

    def __call__(self, function: Any, *rest: Any) -> int:
        *shape, stream, parameters, extra = rest
        assert extra is None
        pointer = ctypes.cast(parameters[0], ctypes.POINTER(ctypes.c_void_p))[0]
        number = ctypes.cast(parameters[1], ctypes.POINTER(ctypes.c_uint64))[0]
        signed = ctypes.cast(parameters[2], ctypes.POINTER(ctypes.c_int))[0]
        self.launches.append((function, tuple(shape), stream, pointer, number, signed))
        return self.code


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setattr(ctypes, "PyDLL", lambda _: driver)
    monkeypatch.setattr(
        torch.cuda, "_compile_kernel", lambda *_: SimpleNamespace(func=FUNCTION), raising=False
    )
    return driver


@pytest.fixture
def kernel(driver: Driver) -> Kernel:
    del driver
    parameters = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int)
    return Kernel("source", "name", parameters, blocks=16, threads=544)


def stream() -> torch.cuda.Stream:
    return cast("torch.cuda.Stream", SimpleNamespace(cuda_stream=STREAM))


def test_a_launch_has_its_shape_stream_and_arguments(driver: Driver, kernel: Kernel) -> None:
    kernel(stream(), 2**40, 2**63, -1)
    kernel(stream(), 8, 5, 3)
    shape = (16, 1, 1, 544, 1, 1, 0)
    assert driver.launches == [
        (FUNCTION, shape, STREAM, 2**40, 2**63, -1),
        (FUNCTION, shape, STREAM, 8, 5, 3),
    ]


def test_too_few_arguments_are_refused(driver: Driver, kernel: Kernel) -> None:
    with pytest.raises(ValueError, match="argument"):
        kernel(stream(), 1, 2)
    assert not driver.launches


def test_a_refusal_of_the_driver_is_an_error(driver: Driver, kernel: Kernel) -> None:
    driver.code = 700
    with pytest.raises(RuntimeError, match="CUDA error: cuLaunchKernel returned 700"):
        kernel(stream(), 1, 2, 3)
