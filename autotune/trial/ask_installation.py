"""Reports what torch and DeepSpeed were built with, what they can build, and what prevents it.

``python -m autotune.trial.ask_installation DEVICE_KIND [OP...] [--remove-stale-locks]`` prints one
JSON object; without an op all ops on CUDA, and none on the CPU. Runs as a separate process:
importing DeepSpeed takes seconds, and may fail.
"""

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from autotune.trial.build_locks import remove_stale_locks, stale_locks
from autotune.trial.build_ops import BUILDERS, deepspeeds_builder, is_built, last_lines


def about_torch() -> dict[str, Any]:
    """Return torch's version, its CUDA and NCCL versions, and the devices that it sees."""
    import torch
    from torch.utils.cpp_extension import CUDA_HOME

    facts: dict[str, Any] = {
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "nccl": None,
        "archs": [],
        "capabilities": [],
        "cuda_error": None,
        "cuda_home": CUDA_HOME,
    }
    if torch.version.cuda is None:
        return facts
    facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    facts["archs"] = torch.cuda.get_arch_list()
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        facts["capabilities"] = [
            torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count())
        ]
    except (RuntimeError, AssertionError) as error:
        facts["cuda_error"] = last_lines(str(error))
    return facts


def about_op(op: str) -> dict[str, Any]:
    """Return whether an op is built, whether it can be built, and why not."""
    facts: dict[str, Any] = {"name": op, "built": False, "needs_nvcc": False, "why": None}
    try:
        builder = deepspeeds_builder(op)
        facts["needs_nvcc"] = any(str(source).endswith(".cu") for source in builder.sources())
        facts["built"] = is_built(op)
        if facts["built"]:
            _load_as_built(op)
        elif not builder.is_compatible(verbose=True):
            facts["why"] = builder.error_log or "DeepSpeed calls it incompatible with this machine"
    except Exception as error:  # noqa: BLE001  any exception is the reason
        facts["why"] = f"{type(error).__name__}: {last_lines(str(error))}"
    return facts


def _load_as_built(op: str) -> None:
    """Load an op's library, without DeepSpeed's check whether to rebuild it."""
    from deepspeed.git_version_info import installed_ops
    from torch.utils.cpp_extension import _get_build_directory, _import_module_from_library

    if not installed_ops.get(op):
        folder = _get_build_directory(op, verbose=False)
        _import_module_from_library(op, folder, True)  # type: ignore[no-untyped-call]  # noqa: FBT003


def main(device_kind: str, ops: Sequence[str], *, remove_locks: bool) -> None:
    """Print the findings."""
    os.environ["DS_ACCELERATOR"] = device_kind
    answers = os.dup(1)
    os.dup2(2, 1)  # DeepSpeed and compilers print
    facts = about_torch()
    locks = remove_stale_locks() if remove_locks else stale_locks()
    from torch.utils.cpp_extension import get_default_build_root

    facts["extensions"] = os.environ.get("TORCH_EXTENSIONS_DIR") or get_default_build_root()
    facts["stale_locks"] = [str(lock) for lock in locks]
    facts["ops"] = [about_op(op) for op in ops or (BUILDERS if device_kind == "cuda" else ())]
    with os.fdopen(answers, "w", encoding="utf-8") as output:
        output.write(json.dumps(facts))


if __name__ == "__main__":
    options = sys.argv[2:]
    main(
        sys.argv[1],
        [option for option in options if option in BUILDERS],
        remove_locks="--remove-stale-locks" in options,
    )
