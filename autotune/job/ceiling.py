"""Reads memory sizes and ceilings: a share of a device, or a size.

GB and GiB are distinct: a card sold as 80 GB is 80e9 bytes in a vendor's table and 79.2 GiB to its
driver, and the 7 % between the two units is more than the error of the predictions.
"""

import math
import re

from autotune.errors import HardwareError

GIB = 2**30

_UNITS = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": GIB,
    "tib": 2**40,
}
_SIZE = re.compile(r"([-+]?[0-9][0-9_]*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)\s*([a-z%]*)", re.IGNORECASE)
_SIZE_FORMS = "write binary gigabytes (72GiB) or decimal ones (80GB)"
_CEILING_FORMS = "write a share (90%), binary gigabytes (72GiB) or decimal ones (80GB)"


def parse_bytes(text: str, *, where: str = "size") -> int:
    """Read a size with its unit.

    Args:
        text: a number and one of B, KB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB
            (powers of 1024); case and a space between are ignored.
        where: its option or key, for messages.

    Returns:
        Whole bytes, rounded down.

    Raises:
        HardwareError: no number, no unit, an unknown unit, or a size that is not positive.

    Example:
        >>> parse_bytes("80GB"), parse_bytes("72 GiB")
        (80000000000, 77309411328)
    """
    return _size_bytes(text, where=where, forms=_SIZE_FORMS)


def parse_ceiling(text: str, *, device_bytes: int, where: str = "--memory-ceiling") -> int:
    """Read a memory ceiling: a share of the device, or a size.

    Args:
        text: `90%`, `72GiB`, `80GB`.
        device_bytes: the device's memory as its driver reports it.
        where: its option, for messages.

    Returns:
        Bytes a rank may use, as the driver sees them.

    Raises:
        HardwareError: unreadable, not positive, or above the device.

    Example:
        >>> parse_ceiling("90%", device_bytes=80 * 2**30)
        77309411328
    """
    number, unit = _split(text, where=where, forms=_CEILING_FORMS)
    if unit == "%":
        if number > 100:
            raise HardwareError(f"{where} {text}: is above the whole device; use 100% or less")
        ceiling = int(device_bytes * number / 100)
        _require_positive(ceiling, text, where=where, forms=_CEILING_FORMS)
    else:
        ceiling = _size_bytes(text, where=where, forms=_CEILING_FORMS)
    if ceiling > device_bytes:
        raise HardwareError(
            f"{where} {text}: {format_gib(ceiling)} is above the device's "
            f"{format_gib(device_bytes)}; use 100% or less"
        )
    return ceiling


def format_gib(num_bytes: float) -> str:
    """Return bytes as GiB for a reader; the only place where bytes become GiB.

    Example:
        >>> format_gib(77309411328)
        '72.00 GiB'
    """
    return f"{num_bytes / GIB:.2f} GiB"


def _size_bytes(text: str, *, where: str, forms: str) -> int:
    """Read a size; `forms` are the accepted forms, for messages."""
    number, unit = _split(text, where=where, forms=forms)
    # Before the unit: -1 is wrong with any unit.
    _require_positive(number, text, where=where, forms=forms)
    if unit not in _UNITS:
        raise HardwareError(_unknown_unit(text, unit, where=where, forms=forms))
    num_bytes = int(number * _UNITS[unit])
    _require_positive(num_bytes, text, where=where, forms=forms)
    return num_bytes


def _split(text: str, *, where: str, forms: str) -> tuple[float, str]:
    match = _SIZE.fullmatch(text.strip())
    number = float(match[1].replace("_", "")) if match else math.nan
    if match is None or not math.isfinite(number):
        raise HardwareError(f"{where} {text!r}: not a size; {forms}")
    return number, match[2].lower()


def _unknown_unit(text: str, unit: str, *, where: str, forms: str) -> str:
    if unit == "%":
        return f"{where} {text}: a share, where a size is needed; write 72GiB or 80GB"
    if unit in ("", "g", "m", "gi"):
        return f"{where} {text}: GB (1000^3 bytes) or GiB (1024^3 bytes)? {forms}"
    return f"{where} {text}: unknown unit {unit!r}; {forms}"


def _require_positive(amount: float, text: str, *, where: str, forms: str) -> None:
    if amount <= 0:
        raise HardwareError(f"{where} {text}: must be more than zero; {forms}")
