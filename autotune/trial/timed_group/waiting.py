"""Spends the time of a collective where a real one would: on a CUDA stream, or on the host."""

import time
from ctypes import c_int, c_uint64, c_void_p
from functools import cache
from typing import Protocol

import torch

from autotune.trial.timed_group.fill import VECTOR_BYTES, Copies, Fill
from autotune.trial.timed_group.kernel import Kernel

_NUM_CHANNELS = 16
"""Blocks that wait. NCCL runs a collective on as many channels, each a block that occupies a
multiprocessor (`NCCL_MAX_NCHANNELS`; 16 to 32 over NVLink)."""
_THREADS = 544
"""Of one block: NCCL's number for its simple protocol, a warp for control included."""

_SOURCE = """
// Reads that are under way for every thread: a block has the latency of memory to hide.
#define DEPTH 8

__device__ unsigned long long now_ns() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

__device__ void wait_for(unsigned long long end_ns) {
    while (now_ns() < end_ns) __nanosleep(200);
}

extern "C" __global__ void begin(unsigned long long *start_ns) {
    *start_ns = now_ns();
}

extern "C" __global__ void wait_until(
    const unsigned long long *start_ns, unsigned long long duration_ns
) {
    wait_for(*start_ns + duration_ns);
}

extern "C" __global__ void copy_and_wait(
    uint4 *target, const uint4 *source, unsigned long long size, int places, int own,
    unsigned long long duration_ns
) {
    const unsigned long long end_ns = now_ns() + duration_ns;
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + (DEPTH - 1) * stride < size; i += DEPTH * stride) {
        uint4 read[DEPTH];
        #pragma unroll
        for (int k = 0; k < DEPTH; k++) read[k] = source[i + k * stride];
        for (int place = 0; place < places; place++) {
            if (place == own) continue;
            #pragma unroll
            for (int k = 0; k < DEPTH; k++) target[place * size + i + k * stride] = read[k];
        }
    }
    for (; i < size; i += stride) {
        const uint4 read = source[i];
        for (int place = 0; place < places; place++) {
            if (place != own) target[place * size + i] = read;
        }
    }
    wait_for(end_ns);
}
"""


class Handle(Protocol):
    """A running operation."""

    def wait(self) -> None:
        """Make later operations wait for it, as the `wait` of a collective's work does."""

    def is_done(self) -> bool:
        """Return whether it has ended."""


class Waiting(Protocol):
    """Runs collectives of one process group, one after the other."""

    def run(self, duration_s: float, fill: Fill, *, is_async: bool) -> Handle:
        """Take `duration_s`, in which `fill` writes the result."""


class HostWaiting:
    """Collectives of CPU ranks: they run in the background until a wait."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def run(self, duration_s: float, fill: Fill, *, is_async: bool) -> Handle:
        """Fill at once; done when the earlier collectives and this one have spent their time."""
        began = max(time.perf_counter(), self._free_at)
        if fill is not None:
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
    """Collectives on a CUDA device, on a separate stream like NCCL's.

    The stream waits by the device's clock, so the host runs ahead as in a real run. Synchronous
    collectives run on the caller's stream, as with NCCL in torch. The cost on the host is that of
    NCCL's call: one launch, in which 16 blocks copy and then wait.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._device = device
        for name in _PARAMETERS:
            _kernel(name)  # now, not during a step
        self._starts: dict[int, torch.Tensor] = {}
        """Per stream: when its running collective started. They run in order, so one is enough."""

    def run(self, duration_s: float, fill: Fill, *, is_async: bool) -> Handle:
        """Queue the collective and return at once."""
        caller = torch.cuda.current_stream(self._device)
        stream = self._stream if is_async else caller
        if is_async:
            stream.wait_stream(caller)
        self._queue(stream, round(duration_s * 1e9), fill)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(stream)
        return _CudaHandle(event, self._device)

    def _queue(self, stream: torch.cuda.Stream, duration_ns: int, fill: Fill) -> None:
        if not duration_ns:
            # Not timed: the copies use the whole device, to be as short as possible.
            self._fill_on(stream, fill)
        elif fill is None:
            _kernel("copy_and_wait")(stream, 0, 0, 0, 0, 0, duration_ns)
        elif isinstance(fill, Copies) and fill.in_vectors:
            _kernel("copy_and_wait")(
                stream,
                fill.target.data_ptr(),
                fill.source.data_ptr(),
                fill.num_bytes // VECTOR_BYTES,
                fill.places,
                -1 if fill.own is None else fill.own,
                duration_ns,
            )
        else:
            start = self._start_of(stream)
            _kernel("begin")(stream, start.data_ptr())
            self._fill_on(stream, fill)
            _kernel("wait_until")(stream, start.data_ptr(), duration_ns)

    def _fill_on(self, stream: torch.cuda.Stream, fill: Fill) -> None:
        if fill is not None:
            with torch.cuda.stream(stream):
                fill()

    def _start_of(self, stream: torch.cuda.Stream) -> torch.Tensor:
        if stream.cuda_stream not in self._starts:
            # Not initialized: that would happen on another stream, possibly too late.
            self._starts[stream.cuda_stream] = torch.empty(
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


_PARAMETERS = {
    "begin": (c_void_p,),
    "wait_until": (c_void_p, c_uint64),
    "copy_and_wait": (c_void_p, c_void_p, c_uint64, c_int, c_int, c_uint64),
}


@cache
def _kernel(name: str) -> Kernel:
    """Return a kernel of the source, compiled once per process: a rank has one device."""
    if name == "begin":
        return Kernel(_SOURCE, name, _PARAMETERS[name])
    return Kernel(_SOURCE, name, _PARAMETERS[name], blocks=_NUM_CHANNELS, threads=_THREADS)
