"""From the request's options to a device, a host and a shape."""

import re
from dataclasses import replace

from autotune.errors import HardwareError, NotJudgedError
from autotune.gate.fit.memory import MemorySetting
from autotune.gate.request import GateRequest
from autotune.job.ceiling import parse_bytes
from autotune.job.device import CATALOGUE, Device, find_device, load_devices
from autotune.job.model_shape import load_model_shape
from autotune.lint.subject import Launch
from autotune.predict.assumed_shape import assumed_shape

_BOX_SHARE = 0.1
"""The most by which a driver's memory lies below the number on the box: 24 GB is 22.03 GiB."""
_SIZE = re.compile(r"-[0-9]+gb")
"""In the name of a device that is sold in several."""
_BARE = re.compile(r"[0-9]+(\.[0-9]+)?")


def memory_setting(request: GateRequest, launch: Launch) -> MemorySetting:
    """Return what memory is judged by.

    Raises:
        AutotuneError: a device or a size is unknown, or the parameters are too few for a shape.
    """
    shape = launch.model
    if shape is None and request.params is not None:
        shape = assumed_shape(request.params)
    not_judged = None
    if shape is None and request.model is not None:
        try:
            shape = load_model_shape(request.model)
        except NotJudgedError as error:
            not_judged = str(error)
    host = request.host_memory
    return MemorySetting(
        shape=shape,
        not_judged=not_judged,
        device=planned_device(request),
        host_bytes=None if host is None else _size_bytes(host, where="--host-memory"),
    )


def planned_device(request: GateRequest) -> Device | None:
    """Return what every rank runs on; None where neither type nor memory is told.

    Of a type that is sold in several sizes, the one whose memory is told. A type that nobody knows
    needs no more than its memory.

    Raises:
        HardwareError: an unknown device without its memory, or an unreadable size.
    """
    memory = request.gpu_memory
    memory_bytes = None if memory is None else _size_bytes(memory, where="--gpu-memory")
    extra = load_devices(request.devices) if request.devices else ()
    name = request.gpu_type
    if name is not None:
        try:
            device = find_device(name, extra=extra)
        except HardwareError as error:
            if memory_bytes is None:
                raise HardwareError(f"{error}, or give its --gpu-memory") from error
        else:
            return device if memory_bytes is None else _of_size(device, memory_bytes)
    if memory_bytes is None:
        return None
    # Nothing is known of its speed; what it is called shows in messages.
    known = find_device("h100-80gb")
    return replace(known, name=name or "GPU", memory_bytes=memory_bytes, aliases=())


def _of_size(device: Device, memory_bytes: int) -> Device:
    """Return the device with the memory that was told.

    The number on the box is a little more than the driver gives, which is what counts: where the
    catalogue has that size of the device, its memory is the driver's.
    """
    family = _SIZE.sub("", device.name)
    for known in (device, *CATALOGUE):
        same_kind = _SIZE.sub("", known.name) == family
        if same_kind and 0 <= memory_bytes - known.memory_bytes < _BOX_SHARE * memory_bytes:
            return known
    return replace(device, memory_bytes=memory_bytes)


def _size_bytes(text: str, *, where: str) -> int:
    """Read a size; a number alone is GiB."""
    stripped = text.strip()
    return parse_bytes(f"{stripped}GiB" if _BARE.fullmatch(stripped) else text, where=where)
