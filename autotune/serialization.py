"""Dataclasses as plain JSON values and back; the only module that imports cattrs."""

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, ClassVar, Self, Union, get_args, get_origin

if TYPE_CHECKING:
    from cattrs import Converter

_LEAVES = (Any, bool, int, float, str, NoneType)


class Serializable:
    """A dataclass that is stored, or sent to another process.

    Tuples are written as lists and members of enums as their values. On reading, a missing key
    takes the field's default, and numbers, texts and mappings of such are taken as they are. A
    class with another form defines `to_json` and `from_json` itself, and may be a field of others.
    """

    __slots__ = ()

    skips_unknown_keys: ClassVar[bool] = False
    """Whether keys that are no fields are ignored on reading; they are errors otherwise."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; `from_json` is the inverse."""
        plain: dict[str, Any] = _converter().unstructure(self)
        return plain

    @classmethod
    def from_json(cls, mapping: Mapping[str, Any]) -> Self:
        """Rebuild it from `to_json`.

        Raises:
            TypeError, ValueError, KeyError: a key is missing or unknown, or a value is of another
                kind than its field.
        """
        from cattrs.errors import ForbiddenExtraKeysError

        try:
            return _converter().structure(mapping, cls)
        except ForbiddenExtraKeysError as error:
            raise TypeError(str(error)) from error


@cache
def _converter() -> "Converter":
    """Return the converter of all classes; made when first asked for, which takes 30 ms."""
    from cattrs import Converter
    from cattrs.gen import make_dict_structure_fn

    converter = Converter(
        detailed_validation=False,
        forbid_extra_keys=True,
        unstruct_collection_overrides={tuple: list},
    )
    converter.register_structure_hook_factory(
        lambda cls: getattr(cls, "skips_unknown_keys", False),
        lambda cls: make_dict_structure_fn(cls, converter, _cattrs_forbid_extra_keys=False),
    )
    # cattrs converts to these types, and leaves members of StrEnum as they are.
    for kind in (bool, int, float, str):
        converter.register_structure_hook(kind, lambda value, _: value)
    converter.register_structure_hook(StrEnum, lambda value, kind: kind(value))
    converter.register_unstructure_hook(StrEnum, lambda member: member.value)
    for predicate, unstructure, structure in (
        (_is_leaf, lambda value: value, lambda value, _: value),
        (_is_mapping_of_leaves, dict, lambda value, _: value),
        (_is_tuple_of_leaves, list, lambda value, _: tuple(value)),
        (_has_own_form, lambda value: value.to_json(), lambda value, cls: cls.from_json(value)),
    ):
        converter.register_unstructure_hook_func(predicate, unstructure)
        converter.register_structure_hook_func(predicate, structure)
    return converter


def _is_leaf(kind: Any) -> bool:
    if get_origin(kind) in (Union, UnionType):
        return all(map(_is_leaf, get_args(kind)))
    return kind in _LEAVES


def _is_mapping_of_leaves(kind: Any) -> bool:
    return get_origin(kind) is Mapping and get_args(kind)[0] is str and _is_leaf(get_args(kind)[1])


def _is_tuple_of_leaves(kind: Any) -> bool:
    kinds = get_args(kind)
    return get_origin(kind) is tuple and kinds[1:] == (...,) and _is_leaf(kinds[0])


def _has_own_form(kind: Any) -> bool:
    return isinstance(kind, type) and "from_json" in vars(kind)
