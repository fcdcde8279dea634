"""What torch and DeepSpeed say of themselves on a machine where all is well, and changes to it."""

from dataclasses import replace
from typing import Any

from autotune.doctor.check import Check, Verdict
from autotune.doctor.installation import Installation, Op

GOOD = Installation(
    torch="2.11.0+cu130",
    torch_cuda="13.0",
    nccl="2.28.9",
    archs=("sm_80", "sm_90", "sm_100", "compute_120"),
    capabilities=((9, 0),),
    cuda_error=None,
    cuda_home="/usr/local/cuda",
    extensions="/none",
    stale_locks=(),
    ops=(),
)


def installation(**changes: Any) -> Installation:
    """Return the good one with other values."""
    return replace(GOOD, **changes)


def op(name: str, **changes: Any) -> Op:
    """Return an op that is not built yet and could be."""
    values = {"built": False, "needs_nvcc": name == "fused_adam", "why": None}
    return Op(name=name, **values | changes)


def expect(check: Check, verdict: Verdict, *words: str) -> None:
    """Make sure that a check came out so, and that its one line has the words."""
    assert check.verdict is verdict, check.line
    assert "\n" not in check.line
    for word in words:
        assert word in check.line
    assert (check.cure is None) == (verdict is Verdict.OK)
