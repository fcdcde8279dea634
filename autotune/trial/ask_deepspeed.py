"""Checks whether the installed DeepSpeed accepts a config, without a device.

``python -m autotune.trial.ask_deepspeed`` reads ``{"ds_config": ..., "world_size": ...}`` from
standard input and prints ``{"refusal": ..., "version": "0.19.8"}``; the refusal is null or the
reason. ``{"questions": [...]}``, a list of such questions, is answered by ``"refusals"``, in the
same order. Runs as a separate process: importing DeepSpeed takes seconds, and leaves a process
group behind.
"""

import json
import logging
import sys
from collections.abc import Mapping
from typing import Any


def refusal(ds_config: Mapping[str, Any], world_size: int) -> str | None:
    """Return why DeepSpeed's config parser refuses a config, or None.

    Assertions of `initialize` are not checked here.
    """
    _form_group(world_size)
    from deepspeed.runtime.config import DeepSpeedConfig

    try:
        DeepSpeedConfig(dict(ds_config))
    except Exception as error:  # noqa: BLE001  any exception is a refusal
        return f"{type(error).__name__}: {' '.join(str(error).split())[:600]}"
    return None


def _form_group(world_size: int) -> None:
    """Form a process group of `world_size` ranks, as its first rank.

    `DeepSpeedConfig` takes the world size from it, and 1 without one.
    """
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        if dist.get_world_size() == world_size:
            return
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=world_size)
    from deepspeed import comm, ops

    # Its compilation takes a minute and is not needed.
    ops.__compatible_ops__["deepspeed_shm_comm"] = False
    comm.init_distributed("fake", dist_init_required=False)


def main() -> None:
    """Answer the questions."""
    asked = json.load(sys.stdin)
    questions = asked.get("questions", [asked])
    answer = sys.stdout
    sys.stdout = sys.stderr  # DeepSpeed logs there while it is imported
    if len(questions) > 1:
        logging.disable()  # the warnings would take longer than the answers
    refusals = [refusal(**question) for question in questions]
    from deepspeed import __version__

    reply = {"refusals": refusals} if "questions" in asked else {"refusal": refusals[0]}
    print(json.dumps({**reply, "version": __version__}), file=answer)


if __name__ == "__main__":
    main()
