"""Fills a card under a ceiling until an allocation fails; prints what the device said, as JSON.

``python -m tests.gpu.fill_card CEILING_BYTES [TAKEN_BYTES]``: with TAKEN_BYTES another process
takes so much of the card after the ceiling was set.
"""

import json
import subprocess
import sys

import torch

from autotune.trial.device.cuda import CudaDevice

BLOCK_BYTES = 256 << 20
_TAKE = """
import sys, torch
kept = torch.empty(int(sys.argv[1]), dtype=torch.uint8, device="cuda")
print("taken", flush=True)
sys.stdin.read()
"""


def main(ceiling_bytes: int, taken_bytes: int) -> None:
    """Fill the card and print."""
    device = CudaDevice(ceiling_bytes=ceiling_bytes, local_rank=0, num_threads=1)
    torch.ones(1, device=device.torch_device)
    device.enforce_ceiling()
    free, total = torch.cuda.mem_get_info()
    outside_bytes = total - free - torch.cuda.memory_reserved()
    reserved_bytes = torch.cuda.memory_reserved()
    other = None
    if taken_bytes:
        other = subprocess.Popen(
            [sys.executable, "-c", _TAKE, str(taken_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert other.stdout is not None
        assert other.stdout.readline() == b"taken\n"
    blocks: list[torch.Tensor] = []
    oom = None
    free_bytes = 0
    while oom is None:
        free_bytes = torch.cuda.mem_get_info()[0]
        try:
            blocks.append(torch.empty(BLOCK_BYTES, dtype=torch.uint8, device=device.torch_device))
        except torch.OutOfMemoryError as error:
            num_blocks = len(blocks)
            blocks.clear()  # as unwinding does
            oom = device.oom_of(error)
            assert oom is not None
            text = str(error)
    sys.stdout.write(
        json.dumps(
            {
                "kind": oom.kind.value,
                "short_bytes": oom.short_bytes,
                "needed_bytes": oom.needed_bytes,
                "asked_bytes": oom.asked_bytes,
                "outside_bytes": outside_bytes,
                "reserved_bytes": reserved_bytes,
                "filled_bytes": num_blocks * BLOCK_BYTES,
                "free_bytes": free_bytes,
                "used_bytes": total - free_bytes,
                "text": text,
            }
        )
    )
    if other is not None:
        other.communicate()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
