"""Driver, CUDA and devices."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from autotune.doctor.check import Check, fail, ok, warn
from autotune.doctor.installation import Installation
from autotune.job.ceiling import format_gib
from autotune.pool import machine

_TRY_ON_CPU = "or try the tool on CPU ranks with --device cpu"
_FREE_BYTES = 2 << 30
"""The driver uses a few hundred MiB of a card without any process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """NVIDIA's driver."""

    version: str
    cuda: tuple[int, int]
    """The newest CUDA that it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A CUDA device as its driver sees it."""

    index: int
    name: str
    memory_bytes: int
    used_bytes: int
    users: tuple[str, ...]
    """Processes that hold memory, as far as the driver reports them: `python (123)`."""


def read_driver() -> Driver | None:
    """Read the driver from NVML; None without one."""
    found = machine.cuda_driver()
    return Driver(version=found[0], cuda=found[1]) if found else None


def read_cards() -> tuple[Card, ...]:
    """Read every device from NVML."""
    cards = []
    for index, name in enumerate(machine.cuda_device_names()):
        users = (f"{machine.process_name(p)} ({p})" for p, _ in machine.cuda_processes(str(index)))
        cards.append(
            Card(
                index=index,
                name=name,
                memory_bytes=machine.cuda_device(str(index))[1],
                used_bytes=machine.cuda_used_bytes(str(index)),
                users=tuple(users),
            )
        )
    return tuple(cards)


def check_driver(driver: Driver | None) -> Check:
    """NVML answers."""
    if driver is None:
        return fail(
            "driver",
            "NVML finds no NVIDIA driver",
            f"install one (in a container: start it with --gpus all), {_TRY_ON_CPU}",
        )
    return ok("driver", f"{driver.version}, for CUDA up to {_dotted(driver.cuda)}")


def check_cuda(driver: Driver | None, torch: Installation) -> Check:
    """Torch was built for a CUDA version that the driver supports, and CUDA starts."""
    if torch.torch_cuda is None:
        return fail(
            "CUDA",
            f"torch {torch.torch} was built without CUDA",
            "install one with CUDA: https://pytorch.org/get-started/locally",
        )
    major, minor = (int(part) for part in torch.torch_cuda.split(".")[:2])
    if driver is not None and major > driver.cuda[0]:
        return fail(
            "CUDA",
            f"torch was built for CUDA {major}.{minor}, the driver runs up to "
            f"{_dotted(driver.cuda)}",
            f"update the driver, or install a torch for CUDA {driver.cuda[0]}",
        )
    if torch.cuda_error is not None:
        return fail(
            "CUDA",
            f"torch cannot start CUDA: {torch.cuda_error}",
            "see `nvidia-smi`; after a driver update the machine has to be restarted",
        )
    return ok("CUDA", f"{major}.{minor} in torch" + ("" if driver else ", no driver"))


def check_cards(cards: tuple[Card, ...], torch: Installation) -> Iterator[Check]:
    """There are devices, of one model, free, with kernels in torch."""
    if not cards:
        yield fail(
            "devices",
            "no CUDA device",
            f"see `nvidia-smi` and CUDA_VISIBLE_DEVICES, {_TRY_ON_CPU}",
        )
        return
    models = Counter(card.name for card in cards)
    if len(models) > 1:
        yield fail(
            "devices",
            f"several models: {', '.join(f'{n} x {name}' for name, n in models.items())}",
            "a study compares trials: choose devices of one with CUDA_VISIBLE_DEVICES",
        )
    lacking = [c for c in torch.capabilities if not _has_kernels(torch.archs, c)]
    if lacking:
        yield fail(
            "kernels",
            f"torch {torch.torch} has no kernels for compute capability "
            f"{', '.join(_dotted(c) for c in sorted(set(lacking)))}",
            "install a torch that supports these cards",
        )
    for card in cards:
        yield _check_card(card)


def _check_card(card: Card) -> Check:
    name = f"cuda:{card.index}"
    found = f"{card.name}, {format_gib(card.memory_bytes)}"
    if not card.users and card.used_bytes < _FREE_BYTES:
        return ok(name, f"{found}, free")
    users = ", ".join(card.users) or "a process that is not visible from here"
    return warn(
        name,
        f"{found}, {format_gib(card.used_bytes)} in use by {users}",
        "a trial next to another program would measure both: end it, or leave this device out",
    )


def _has_kernels(archs: tuple[str, ...], capability: tuple[int, int]) -> bool:
    """Return whether torch has code for a device: for its major version, or PTX to compile."""
    major, minor = capability
    for arch in archs:
        kind, _, number = arch.partition("_")
        digits = "".join(c for c in number if c.isdigit())
        if not digits:
            continue
        of = int(digits[:-1]), int(digits[-1])
        if (of[0] == major and of[1] <= minor) or (kind == "compute" and of <= capability):
            return True
    return not archs


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
