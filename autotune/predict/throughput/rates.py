"""The constants of the speed model: eight, each with what it means.

The first three are about kernels and their launches, the next two about stage 3's Python, one about
collectives, the last two about the optimizer step. `tests/benchmarks/throughput_fit.py` fits them
to measured step times.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Constants fitted to runs on an H200 host with 16 cores; see the module."""

    matmul: float = 0.805
    """Of the device's best matrix products, what a training step's own shapes reach."""
    traffic: float = 2.81
    """Bytes of device memory moved per byte of every tensor that a step makes: written once, read
    by what uses it, in kernels that reach half to nine tenths of the memory's rate."""
    launch_s: float = 30.7e-6
    """A kernel's way through Python, autograd and torch, on one core of the host."""
    hook_s: float = 306e-6
    """Stage 3: the hooks around one module's pass, and as much again for each parameter that is
    gathered and each gradient that is sharded."""
    piece_s: float = 13.2e-6
    """Stage 3: one rank's piece of one tensor; DeepSpeed cuts and joins them in Python loops over
    all ranks (`AllGatherCoalescedHandle.wait`, `reduce_scatter_coalesced`)."""
    contention: float = 0.43
    """Of the time that collectives run beside kernels, what these lose: NCCL takes
    multiprocessors and memory bandwidth. Eight runs say little of it; 0.2 to 0.4 is reported."""
    step_launches: float = 8.0
    """Kernels per tensor of a rank in `step`: norms, scaling, copies."""
    cpu_adam_elements_per_s: float = 2.65e9
    """CPUAdam on all cores of a node; 16 where it was measured."""


RATES = Rates()
