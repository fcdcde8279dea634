"""Asks the real DeepSpeed whether it takes a config, without a device.

``python -m autotune.trial.ask_deepspeed`` reads ``{"ds_config": ..., "world_size": ...}`` from
standard input and prints ``{"refusal": null}`` or the reason. A process of its own: importing
DeepSpeed takes seconds, and its process group would stay behind.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any


def refusal(ds_config: Mapping[str, Any], world_size: int) -> str | None:
    """Return why DeepSpeed's config parser refuses a config, or None.

    What DeepSpeed asserts only at `initialize` is not found here.
    """
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    # DeepSpeedConfig takes the world size from the process group, and 1 without one.
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world_size)
    from deepspeed import comm, ops
    from deepspeed.runtime.config import DeepSpeedConfig

    # It would be compiled for a minute, for nothing.
    ops.__compatible_ops__["deepspeed_shm_comm"] = False
    comm.init_distributed("fake", dist_init_required=False)
    try:
        DeepSpeedConfig(dict(ds_config))
    except Exception as error:  # noqa: BLE001  whatever it raises is its refusal
        return f"{type(error).__name__}: {' '.join(str(error).split())[:600]}"
    return None


def main() -> None:
    """Answer one question."""
    question = json.load(sys.stdin)
    answer = sys.stdout
    sys.stdout = sys.stderr  # DeepSpeed logs there while it is imported
    print(json.dumps({"refusal": refusal(**question)}), file=answer)


if __name__ == "__main__":
    main()
