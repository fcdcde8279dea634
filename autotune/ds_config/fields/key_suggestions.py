"""Finds the field that an unknown key probably stands for."""

import difflib
from collections.abc import Collection, Mapping
from functools import cache

from autotune.ds_config.fields.table import documented_key, known_fields

_ALIKE = 0.88
"""The similarity, by word or as a whole, from which on two names count as a misspelling."""
_ALIKE_WORD = 0.6
_ALIKE_ABBREVIATED = 0.72
"""The same where words are cut short: `grad_accum_steps`."""
_SHORTEST_CUT = 4
_FEW = 2
_GENERIC = frozenset(("enabled", "type", "params", "names", "classes"))


@cache
def names_in(section: str) -> frozenset[str]:
    """Return the names that may stand in a section, python names of pydantic fields included.

    Example:
        >>> sorted(names_in("timers.throughput"))
        ['enabled', 'synchronized']
    """
    prefix = f"{documented_key(section)}." if section else ""
    return frozenset(
        name.removeprefix(prefix).partition(".")[0]
        for field in known_fields().values()
        for name in (field.key, *field.aliases)
        if name.startswith(prefix) and not field.removed
    )


@cache
def misspelt(section: str, key: str) -> str | None:
    """Return the name in the same section that a key is a misspelling of; None if it is of none.

    Words are compared one by one, so that `eval_batch_size` is not `train_batch_size`; or the
    names without their underscores, or a name whose end is missing.

    Example:
        >>> misspelt("", "gradient_cliping"), misspelt("zero_optimization", "prefetch_bucket")
        ('gradient_clipping', 'prefetch_bucket_size')
        >>> misspelt("", "grad_accum_steps"), misspelt("data_types", "grad_accumulation_dtype")
        ('gradient_accumulation_steps', 'grad_accum_dtype')
        >>> misspelt("", "eval_micro_batch_size_per_gpu")
    """
    plain = _plain(key)
    names = {_plain(name): name for name in names_in(section)}
    if plain in names:
        return names[plain]
    found = difflib.get_close_matches(plain, names, n=3, cutoff=0.7)
    return next((names[name] for name in found if _is_misspelling(plain, name)), None)


@cache
def homes(key: str) -> tuple[str, ...]:
    """Return the fields and sections that have a key, or what it misspells, as their last part.

    Names that are in several sections, such as `enabled`, are not used.

    Example:
        >>> homes("offload_optimizer"), homes("loss_scale"), homes("enabled")
        (('zero_optimization.offload_optimizer',), ('fp16.loss_scale',), ())
    """
    by_leaf = _by_leaf()
    plain = _plain(key)
    if plain not in by_leaf:
        found = difflib.get_close_matches(plain, by_leaf, n=3, cutoff=0.8)
        plain = next((name for name in found if "_" in name and _is_misspelling(plain, name)), "")
    places = by_leaf.get(plain, ())
    return places if len(places) <= _FEW else ()


@cache
def _by_leaf() -> Mapping[str, tuple[str, ...]]:
    leaves: dict[str, dict[str, None]] = {}
    for field in known_fields().values():
        if not field.removed:
            for name in (field.key, *field.aliases):
                leaves.setdefault(name.rpartition(".")[2], {})[field.key] = None
    return {leaf: tuple(places) for leaf, places in leaves.items()}


def section_like(keys: Collection[str]) -> str | None:
    """Return the one section that all of some keys belong to; None if none has them, or several.

    Example:
        >>> section_like({"stage", "overlap_comm"}), section_like({"enabled"})
        ('zero_optimization', None)
    """
    if not set(keys) - _GENERIC:
        return None
    sections = [field.key for field in known_fields().values() if field.type == "section"]
    found = [section for section in sections if set(keys) <= names_in(section)]
    return found[0] if len(found) == 1 else None


def _plain(key: str) -> str:
    return key.strip().lower().replace("-", "_").replace(" ", "_").replace("isation", "ization")


def _is_misspelling(key: str, name: str) -> bool:
    words, right = key.split("_"), name.split("_")
    if len(words) == len(right):
        pairs = list(zip(words, right, strict=True))
        if all(_likeness(*pair) >= _ALIKE_WORD for pair in pairs):
            return _likeness(key, name) >= _ALIKE - 0.1
        return len(words) > 1 and (
            all(left == right or _is_cut(left, right) for left, right in pairs)
            and _likeness(key, name) >= _ALIKE_ABBREVIATED
        )
    if len(words) > 1 and right[: len(words)] == words:
        return True
    return _likeness(key.replace("_", ""), name.replace("_", "")) >= _ALIKE


def _is_cut(left: str, right: str) -> bool:
    """Whether one word is a prefix of the other."""
    short, long = sorted((left, right), key=len)
    return len(short) >= _SHORTEST_CUT and long.startswith(short)


def _likeness(left: str, right: str) -> float:
    return difflib.SequenceMatcher(None, left, right).ratio()
