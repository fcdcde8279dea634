"""In processes of their own: a process group stays for a process's life."""

import subprocess
import sys

_GATHER = """
import sys, warnings
warnings.simplefilter("ignore")
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from autotune.trial import lone_group
lone_group.register()
dist.init_process_group(sys.argv[1], store=FakeStore(), rank=0, world_size=4)
output = torch.zeros(8)
dist.all_gather_into_tensor(output, torch.tensor([[1.0], [2.0]]), async_op=True).wait()
print(output.tolist())
group = dist.new_group([0, 2])
output = torch.zeros(4)
dist.all_gather_into_tensor(output, torch.tensor([[1.0], [2.0]]), group=group)
print(output.tolist())
buffer = torch.arange(8.0)
dist.all_gather_into_tensor(buffer, buffer[:2])
print(buffer.tolist())
reduced = torch.ones(2)
dist.all_reduce(reduced)
dist.barrier()
print(reduced.tolist(), dist.get_world_size(), dist.get_world_size(group))
"""


def _run(backend: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _GATHER, backend], capture_output=True, text=True, check=False
    )


def test_a_column_is_gathered_into_a_flat_buffer() -> None:
    done = _run("lone")
    assert done.stdout.splitlines() == [
        "[1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0]",
        "[1.0, 2.0, 1.0, 2.0]",
        "[0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0]",
        "[1.0, 1.0] 4 2",
    ], done.stderr


def test_torchs_own_group_still_fails_at_it() -> None:
    assert "doesn't match the broadcast shape" in _run("fake").stderr
