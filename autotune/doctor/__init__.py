"""`autotune doctor`: checks everything that a run needs on this machine."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from autotune.doctor.check import Check, Group, Verdict, fail, ok, run_group
from autotune.doctor.cluster import check_address, check_cluster
from autotune.doctor.devices import check_cards, check_cuda, check_driver, read_cards, read_driver
from autotune.doctor.host import check_host
from autotune.doctor.installation import Installation, ask_installation
from autotune.doctor.ops import (
    check_arch_list,
    check_compilers,
    check_locks,
    check_ops,
    ops_wait,
    read_compilers,
)
from autotune.doctor.software import check_nccl, check_packages
from autotune.errors import HardwareError

__all__ = ["Check", "DoctorRequest", "Verdict", "examine_machine", "worst"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorRequest:
    """The options of `autotune doctor`."""

    device: str = "auto"
    """auto and cuda: what runs on GPUs need. cpu: what CPU ranks need."""
    fix: bool = False
    """Remove stale locks."""


def examine_machine(request: DoctorRequest) -> Iterator[Check]:
    """Check this machine; yields each check when it is done. Takes about half a minute.

    Raises:
        HardwareError: `device` is not one of these.
    """
    if request.device not in ("auto", "cuda", "cpu"):
        raise HardwareError(f"--device {request.device}: must be auto, cuda or cpu")
    on_cuda = request.device != "cpu"
    yield from run_group("packages", check_packages)
    try:
        torch = ask_installation("cuda" if on_cuda else "cpu", remove_locks=request.fix)
    except HardwareError as error:
        torch = None
        yield fail("torch", str(error), "reinstall autotune, in a fresh environment")
    for name, group in _groups(torch, request, on_cuda=on_cuda):
        yield from run_group(name, group)


def worst(checks: list[Check]) -> Verdict:
    """Return the worst verdict of the checks."""
    order = list(Verdict)
    return max((check.verdict for check in checks), key=order.index, default=Verdict.OK)


def _groups(
    torch: Installation | None, request: DoctorRequest, *, on_cuda: bool
) -> Iterator[tuple[str, Group]]:
    if on_cuda:
        yield "driver", lambda: [check_driver(read_driver())]
        if torch is not None:
            yield "CUDA", lambda: [check_cuda(read_driver(), torch)]
            yield "devices", lambda: check_cards(read_cards(), torch)
            yield "NCCL", lambda: [check_nccl(torch)]
            yield "ops", partial(_check_building, torch)
        yield "arch list", lambda: [check_arch_list(os.environ)]
    else:
        yield "devices", lambda: [ok("devices", "CPU ranks, with torch's optimizer")]
    if torch is not None:
        yield "build locks", lambda: [check_locks(torch, removed=request.fix)]
    extensions = torch.extensions if torch is not None and on_cuda else None
    yield "host", lambda: check_host(extensions)
    yield "Ray", check_cluster
    yield "RAY_ADDRESS", check_address


def _check_building(torch: Installation) -> Iterator[Check]:
    compilers = read_compilers(torch.cuda_home)
    yield from check_compilers(compilers, torch, ops_wait=ops_wait(torch))
    yield from check_ops(torch, compilers)
