"""The constants of the speed model: ten, each with what it means.

The first four are about kernels and their launches, the next two about stage 3's Python, two about
collectives, the last two about the optimizer step. `tests/benchmarks/throughput_fit.py` fits them
to measured step times.
"""

from dataclasses import dataclass, replace
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Constants fitted to runs on hosts of one to four H200, 16 cores each; see the module."""

    matmul: float = 0.864
    """Of the device's best matrix products, what a training step's own shapes reach."""
    traffic: float = 2.9
    """Bytes of device memory moved per byte of every tensor that a step makes: written once, read
    by what uses it, in kernels that reach half to nine tenths of the memory's rate."""
    launch_s: float = 22.3e-6
    """A kernel's way through Python, autograd and torch, on one core of the host."""
    checkpoint_s: float = 1.46e-3
    """What `torch.utils.checkpoint` costs the host per layer that runs again: the state of the
    random numbers kept and put back, and a Python hook around each tensor that is saved: when the
    layer runs first, when it runs again, and when backward asks for it."""
    hook_s: float = 258e-6
    """Stage 3: the hooks around one module's pass (the mean of forward and backward), and as much
    again for each parameter that is gathered and each gradient that is sharded."""
    piece_s: float = 14.7e-6
    """Stage 3: one rank's piece of one tensor; DeepSpeed cuts and joins them in Python loops over
    all ranks (`AllGatherCoalescedHandle.wait`, `reduce_scatter_coalesced`)."""
    call_s: float = 233e-6
    """DeepSpeed's way to one collective of a bucket, beside what each tensor in it costs: sorting
    its slices by rank, streams and events to wait for, views, the bucket's books. Buckets smaller
    than a parameter pay it for every parameter."""
    contention: float = 0.263
    """Of the time that collectives run beside kernels, what these lose: NCCL takes
    multiprocessors and memory bandwidth. A few runs say little of it; 0.2 to 0.4 is reported."""
    step_launches: float = 6.98
    """Kernels per tensor of a rank in `step`: norms, scaling, copies."""
    cpu_passes: float = 2.25
    """An optimizer step on the CPU, as a multiple of CPUAdam alone: DeepSpeed clips the gradients
    and casts the weights in passes of their own over the host's memory, 8 bytes an element each
    beside CPUAdam's 28, in torch's loops."""

    def on_host(self, slowness: float) -> Self:
        """Return the constants for a host that takes so many times as long for its part."""
        return replace(
            self,
            launch_s=self.launch_s * slowness,
            checkpoint_s=self.checkpoint_s * slowness,
            hook_s=self.hook_s * slowness,
            piece_s=self.piece_s * slowness,
            call_s=self.call_s * slowness,
        )


RATES = Rates()
