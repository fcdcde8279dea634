"""Launches a CUDA kernel from Python in a few microseconds.

torch compiles sources at run time, but its launcher opens the driver's library for every launch: 25
us and garbage for the collector each, half the time of NCCL's call.
"""

import ctypes
import threading
from typing import Any

import torch

_ARGUMENTS = (ctypes.c_void_p, *(7 * (ctypes.c_uint,)), *(3 * (ctypes.c_void_p,)))
"""Of cuLaunchKernel: function, grid, block, shared bytes, stream, parameters, extra."""


class Kernel:
    """A kernel of fixed grid and block."""

    def __init__(
        self,
        source: str,
        name: str,
        parameters: tuple[type[Any], ...],
        *,
        blocks: int = 1,
        threads: int = 1,
    ) -> None:
        """Compile it; CUDA must be initialized.

        Args:
            source: CUDA C++, the kernel `extern "C"`.
            name: of the kernel.
            parameters: their ctypes, in order.
            blocks: of the grid, in one dimension.
            threads: of a block, in one dimension.

        Raises:
            RuntimeError: the source does not compile.
        """
        self._compiled = torch.cuda._compile_kernel(source, name)  # keeps the module loaded
        # Keeps the GIL: a launch takes two microseconds, or until a full queue has room. No other
        # thread of a rank has work meanwhile.
        self._launch = ctypes.PyDLL("libcuda.so.1").cuLaunchKernel
        self._launch.argtypes = _ARGUMENTS
        self._lock = threading.Lock()  # backward launches from another thread
        self._shape = (blocks, 1, 1, threads, 1, 1, 0)
        self._values = [kind() for kind in parameters]
        self._parameters = (ctypes.c_void_p * len(parameters))(
            *(ctypes.addressof(value) for value in self._values)
        )

    def __call__(self, stream: torch.cuda.Stream, *arguments: int) -> None:
        """Queue it on a stream, with pointers as integers.

        Raises:
            RuntimeError: the driver refused.
        """
        with self._lock:
            for value, argument in zip(self._values, arguments, strict=True):
                value.value = argument
            code = self._launch(
                self._compiled.func, *self._shape, stream.cuda_stream, self._parameters, None
            )
        if code:
            raise RuntimeError(f"CUDA error: cuLaunchKernel returned {code}")
