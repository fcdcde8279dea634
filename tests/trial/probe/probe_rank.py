"""One gloo rank of a probe on CPUs; prints its result. A process's program.

Usage: python probe_rank.py RANK WORLD_SIZE STORE_FILE
"""

import json
import sys

import torch.distributed as dist

from autotune.trial.device.cpu import CpuDevice
from autotune.trial.probe.run import probe
from autotune.trial.probe.spec import ProbeSpec


def main(rank: int, world_size: int, store: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world_size)
    spec = ProbeSpec(
        label="probe",
        device_kind="cpu",
        num_threads=1,
        groups=((0, 1), tuple(range(world_size))),
        sizes_bytes=(1 << 12, 1 << 20),
        num_repeats=3,
        adam_elements=10_000,
    )
    result = probe(
        ProbeSpec.from_json(json.loads(json.dumps(spec.to_json()))),
        rank=rank,
        device=CpuDevice(ceiling_bytes=1 << 40, num_threads=1),
        mark=lambda where: None,
    )
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
