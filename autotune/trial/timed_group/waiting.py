"""Taking the time of a collective where it would be taken: on a CUDA stream, or on the host."""

import time
from collections.abc import Callable
from typing import Protocol

import torch

_NUM_CHANNELS = 16
"""Blocks that wait. NCCL runs a collective on as many channels, each of them a block that keeps a
multiprocessor from the kernels beside it (`NCCL_MAX_NCHANNELS`; 16 to 32 over NVLink)."""
_THREADS = 544
"""Of one block: NCCL's own number for its simple protocol, a warp for control included."""

_SOURCE = """
extern "C" __global__ void begin(unsigned long long *start) {
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    *start = now;
}

extern "C" __global__ void wait_until(const unsigned long long *start, int duration_ns) {
    unsigned long long now, end = *start + duration_ns;
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        if (now < end) __nanosleep(200);
    } while (now < end);
}
"""
_MAX_NS = 2**31 - 1


class Handle(Protocol):
    """Something under way."""

    def wait(self) -> None:
        """Let what comes next wait for it, as the `wait` of a collective's work does."""

    def is_done(self) -> bool:
        """Return whether it is over."""


class Waiting(Protocol):
    """Runs collectives of one process group, one after the other."""

    def run(self, duration_s: float, fill: Callable[[], None], *, is_async: bool) -> Handle:
        """Take `duration_s`, in which `fill` writes the result."""


class HostWaiting:
    """Collectives of CPU ranks: they go on behind the caller's back until somebody waits."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def run(self, duration_s: float, fill: Callable[[], None], *, is_async: bool) -> Handle:
        """Fill at once; be done when the collectives before, and this one, have had their time."""
        began = max(time.perf_counter(), self._free_at)
        fill()
        self._free_at = began + duration_s
        handle = _HostHandle(self._free_at)
        if not is_async:
            handle.wait()
        return handle


class _HostHandle:
    def __init__(self, done_at: float) -> None:
        self._done_at = done_at

    def wait(self) -> None:
        left_s = self._done_at - time.perf_counter()
        if left_s > 0:
            time.sleep(left_s)

    def is_done(self) -> bool:
        return time.perf_counter() >= self._done_at


class CudaWaiting:
    """Collectives on a CUDA device, on a stream of their own as NCCL's are.

    The stream waits by the device's own clock, so the host runs ahead as it does in a real run.
    Synchronous collectives run on the caller's stream, as torch has NCCL run them.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._device = device
        self._begin = _kernel("begin")
        self._wait_until = _kernel("wait_until")
        self._starts: dict[int, torch.Tensor] = {}
        """Per stream: when its collective under way began. They run in order, so one will do."""

    def run(self, duration_s: float, fill: Callable[[], None], *, is_async: bool) -> Handle:
        """Queue the collective and return at once."""
        caller = torch.cuda.current_stream(self._device)
        stream = self._stream if is_async else caller
        if is_async:
            stream.wait_stream(caller)
        duration_ns = min(round(duration_s * 1e9), _MAX_NS)
        start = self._start_of(stream)
        with torch.cuda.stream(stream):
            if duration_ns:
                self._begin(args=[start], stream=stream)
            fill()
            if duration_ns:
                self._wait_until(
                    grid=(_NUM_CHANNELS, 1, 1),
                    block=(_THREADS, 1, 1),
                    args=[start, duration_ns],
                    stream=stream,
                )
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(stream)
        return _CudaHandle(event, self._device)

    def _start_of(self, stream: torch.cuda.Stream) -> torch.Tensor:
        if stream.cuda_stream not in self._starts:
            self._starts[stream.cuda_stream] = torch.zeros(
                1, dtype=torch.int64, device=self._device
            )
        return self._starts[stream.cuda_stream]


class _CudaHandle:
    def __init__(self, event: torch.cuda.Event, device: torch.device) -> None:
        self._event = event
        self._device = device

    def wait(self) -> None:
        torch.cuda.current_stream(self._device).wait_event(self._event)

    def is_done(self) -> bool:
        return bool(self._event.query())  # type: ignore[no-untyped-call]


def _kernel(name: str) -> Callable[..., None]:
    compile_kernel = torch.cuda._compile_kernel
    return compile_kernel(_SOURCE, name)  # type: ignore[no-any-return]
