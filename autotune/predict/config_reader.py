"""Reading one value of a ds_config as DeepSpeed would, and collecting what is wrong with it."""

from collections.abc import Mapping
from typing import Any

from autotune import dotted

_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


class Values:
    """A ds_config, read key by key; `"auto"` and null count as not given.

    Args:
        ds_config: the parsed config.
        faults: one message per key that cannot be read is added here, so that a user sees
            every fault at once.
    """

    def __init__(self, ds_config: Mapping[str, Any], faults: list[str]) -> None:
        self.ds_config = ds_config
        self.faults = faults

    def said(self, key: str) -> Any:
        """Return the value at a dotted key; None where it is missing, null or `"auto"`."""
        value = dotted.get(self.ds_config, key)
        return None if value == "auto" else value

    def whole(self, key: str, default: int, *, least: int = 0) -> int:
        """Return a whole number; `5e7` is one, as it is to DeepSpeed."""
        value = self.said(key)
        if value is None:
            return default
        number = _as_float(value)
        if number is None or number != int(number) or number < least:
            self.faults.append(f"{key}={value!r}: must be a whole number, {least} or more")
            return default
        return int(number)

    def share(self, key: str, default: float) -> float:
        """Return a number from 0 to 1."""
        value = self.said(key)
        if value is None:
            return default
        number = _as_float(value)
        if number is None or not 0 <= number <= 1:
            self.faults.append(f"{key}={value!r}: must be a number from 0 to 1")
            return default
        return number

    def flag(self, key: str, default: bool) -> bool:  # noqa: FBT001  a default, like the others
        """Return a switch; the words that DeepSpeed takes for one are taken too."""
        value = self.said(key)
        if value is None or isinstance(value, bool):
            return default if value is None else value
        word = str(value).lower()
        if word not in _TRUE | _FALSE:
            self.faults.append(f"{key}={value!r}: must be true or false")
            return default
        return word in _TRUE

    def choice(self, key: str, known: Mapping[str, Any], default: Any) -> Any:
        """Return what `known` holds for the word at `key`."""
        value = self.said(key)
        if value is None:
            return default
        if str(value).lower() not in known:
            self.faults.append(f"{key}={value!r}: must be one of {', '.join(known)}")
            return default
        return known[str(value).lower()]


def _as_float(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if abs(number) < float("inf") else None
