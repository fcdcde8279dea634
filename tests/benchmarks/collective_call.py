"""Benchmark: what a collective costs the host, by NCCL and by the group that stands in for it.

Two CUDA devices, otherwise idle: ``python -m tests.benchmarks.collective_call``. Prints, for
the collectives that ZeRO calls, the median microseconds of a call on the host and their ratio: an
emulated rank that waits for Python is as fast as a real one only if the two are alike.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from autotune.trial.timed_group import group

RANKS, ROUNDS, CALLS = 2, 9, 100
ELEMENTS = 1 << 18
"""Of a shard; small, so that the device is never behind."""


def calls() -> dict[str, Callable[[], Any]]:
    """Return the collectives as DeepSpeed calls them."""
    shard = torch.ones(ELEMENTS, dtype=torch.bfloat16, device="cuda")
    whole = torch.ones(RANKS * ELEMENTS, dtype=torch.bfloat16, device="cuda")
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def all_gather() -> None:
        with torch.cuda.stream(side):
            work = dist.all_gather_into_tensor(whole, shard, async_op=True)
        work.wait()

    def reduce_scatter() -> None:
        dist.reduce_scatter_tensor(shard, whole, async_op=True).wait()

    return {
        "all_gather": all_gather,
        "reduce_scatter": reduce_scatter,
        "all_reduce": lambda: dist.all_reduce(shard),
    }


def host_us(call: Callable[[], Any]) -> float:
    """Return the median of a few rounds."""
    rounds = []
    for _ in range(ROUNDS + 1):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(CALLS):
            call()
        rounds.append((time.perf_counter() - began) / CALLS * 1e6)
    return statistics.median(rounds[1:])


def one_rank(backend: str, rank: int) -> None:
    """Print the microseconds of one rank."""
    torch.cuda.set_device(rank)
    if backend == group.BACKEND:
        group.register(lambda _: 1e-5)
        dist.init_process_group(backend, store=HashStore(), rank=rank, world_size=RANKS)
    else:
        dist.init_process_group(backend, rank=rank, world_size=RANKS)
    sys.stdout.write(json.dumps({name: host_us(call) for name, call in calls().items()}) + "\n")
    sys.stdout.flush()
    os._exit(0)


def ranks(backend: str, number: int) -> dict[str, float]:
    """Run ranks of a backend; return what rank 0 says."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    around = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    running = [
        subprocess.Popen(
            [sys.executable, "-m", __spec__.name, backend, str(rank)],
            env=around,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(number)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in running]
    return dict(json.loads(outputs[0].splitlines()[-1]))


def main() -> None:
    """Compare the two, or be one rank of one of them."""
    if len(sys.argv) > 1:
        one_rank(sys.argv[1], int(sys.argv[2]))
    nccl, timed = ranks("nccl", RANKS), ranks(group.BACKEND, 1)
    for name, us in nccl.items():
        print(f"{name}: NCCL {us:.0f} us, ours {timed[name]:.0f} us, ratio {timed[name] / us:.2f}")


if __name__ == "__main__":
    main()
