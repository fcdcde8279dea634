"""How DeepSpeed converts a value, and which value its writer intended."""

from typing import Any

from autotune.ds_config.fields.kind import Kind, bool_in, kind_of, number_in
from autotune.ds_config.fields.table import Field, known_fields

_WHOLE = frozenset((Kind.BIT, Kind.INTEGER, Kind.WHOLE))


def converted(field: Field, value: Any) -> Any:
    """Return a value as DeepSpeed converts it; unchanged where it does not.

    Example:
        >>> field = Field(key="fp16.hysteresis", type="int", validated=True)
        >>> converted(field, "2"), converted(field, True), converted(field, "two")
        (2, 1, 'two')
    """
    if field.type == "section":
        return value
    if isinstance(value, bool):
        is_number = field.type in ("int", "float") or field.minimum is not None
        return int(value) if is_number else value
    right = intended_value(field, value) if field.validated else None
    return value if right is None else right


def intended_value(field: Field, value: Any) -> Any:
    """Return the value of the field's type that a wrong spelling stands for; None without one.

    Nothing is rounded: the integer intended by a fraction is unknown.

    Example:
        >>> intended_value(Field(key="bucket", type="int"), "5e8")
        500000000
        >>> intended_value(Field(key="bf16", type="section"), True)
        {'enabled': True}
    """
    if field.type == "section":
        return _intended_section(field, value)
    if field.type == "bool" and isinstance(value, str):
        return bool_in(value)
    if field.type not in ("int", "float") or isinstance(value, bool):
        return None
    number = number_in(value) if isinstance(value, str) else value
    if not isinstance(number, int | float):
        return None
    if field.type == "int" and isinstance(number, float):
        return int(number) if kind_of(number) in _WHOLE else None
    return number


def _intended_section(field: Field, value: Any) -> dict[str, Any] | None:
    """Return the section that one value stands for: `"bf16": true`, `"offload_param": "cpu"`."""
    if isinstance(value, bool) and f"{field.key}.enabled" in known_fields():
        return {"enabled": value}
    device = known_fields().get(f"{field.key}.device")
    if device is not None and isinstance(value, str) and value in device.choices:
        return {"device": value}
    return None
