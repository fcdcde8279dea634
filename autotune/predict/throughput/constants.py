"""The ten constants of the speed model.

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
    """Fraction of the device's best matrix products that a training step's shapes reach."""
    traffic: float = 2.9
    """Bytes of device memory moved per byte of every tensor of a step: written once, read by its
    users, in kernels that reach half to nine tenths of the memory's rate."""
    launch_s: float = 22.3e-6
    """A kernel launch through Python, autograd and torch, on one core of the host."""
    checkpoint_s: float = 1.46e-3
    """What `torch.utils.checkpoint` costs the host per layer that runs again: the random state
    saved and restored, and a Python hook around each tensor that is saved: when the layer runs
    first, when it runs again, and when backward reads it."""
    hook_s: float = 258e-6
    """Stage 3: the hooks around one module's pass (the mean of forward and backward), and as much
    again for each parameter that is gathered and each gradient that is sharded."""
    piece_s: float = 14.7e-6
    """Stage 3: one rank's piece of one tensor; DeepSpeed splits and joins them in Python loops over
    all ranks (`AllGatherCoalescedHandle.wait`, `reduce_scatter_coalesced`)."""
    call_s: float = 233e-6
    """DeepSpeed's overhead for one collective of a bucket, besides the cost of each tensor in it:
    sorting its slices by rank, waiting for streams and events, views, bookkeeping. Buckets smaller
    than a parameter pay it for every parameter."""
    contention: float = 0.263
    """Fraction of the time of overlapping collectives that kernels lose: NCCL uses multiprocessors
    and memory bandwidth. Only a few runs determine it; 0.2 to 0.4 is reported."""
    step_launches: float = 6.98
    """Kernels per tensor of a rank in `step`: norms, scaling, copies."""
    cpu_passes: float = 2.25
    """An optimizer step on the CPU, as a multiple of CPUAdam alone: DeepSpeed clips the gradients
    and casts the weights in separate passes over the host's memory, 8 bytes an element each in
    addition to CPUAdam's 28, in torch's loops."""

    def on_host(self, slowness: float) -> Self:
        """Return the constants for a host that is slower by a factor."""
        return replace(
            self,
            launch_s=self.launch_s * slowness,
            checkpoint_s=self.checkpoint_s * slowness,
            hook_s=self.hook_s * slowness,
            piece_s=self.piece_s * slowness,
            call_s=self.call_s * slowness,
        )


RATES = Rates()
