"""A model's layers: which module holds them, and which of them are of one kind."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn

from autotune.predict.program.trace.expand import Choice, choose_layers

_Plain = bool | int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortenedModel:
    """A model of which only a few layers are left."""

    path: str
    """Of the list of layers in the model."""
    choice: Choice


def shorten(model: nn.Module, num_layers: int) -> ShortenedModel | None:
    """Take layers out of a model until those that are left show every kind of layer.

    The layers that stay are numbered anew, in the model's config too, so that it is a model of so
    many layers.

    Args:
        model: the whole model; changed in place.
        num_layers: it has, as its config says.

    Returns:
        What is left; None, and the model unchanged, where its layers are not recognised or none can
        be left out.
    """
    path = _path_of_layers(model, num_layers)
    if path is None:
        return None
    layers = model.get_submodule(path)
    assert isinstance(layers, nn.ModuleList)
    indices = _index_attributes(layers)
    per_layer = _lists_of_config(model, num_layers)
    kinds = [
        (_fingerprint(layer, indices), tuple(repr(values[k]) for _, _, values in per_layer))
        for k, layer in enumerate(layers)
    ]
    choice = choose_layers(kinds)
    if len(choice.chosen) == num_layers:
        return None
    for config, name, values in per_layer:
        setattr(config, name, type(values)(values[k] for k in choice.chosen))
    for config in _configs(model):
        if getattr(config, "num_hidden_layers", None) == num_layers:
            config.num_hidden_layers = len(choice.chosen)
    kept = [layers[k] for k in choice.chosen]
    for position, layer in enumerate(kept):
        modules = dict(layer.named_modules())
        for (name, attribute), offset in indices.items():
            if name in modules and hasattr(modules[name], attribute):
                setattr(modules[name], attribute, position + offset)
    parent, _, own = path.rpartition(".")
    setattr(model.get_submodule(parent), own, nn.ModuleList(kept))
    return ShortenedModel(path=path, choice=choice)


def split_name(name: str, path: str) -> tuple[int | None, str]:
    """Return the layer that a parameter lies in, None outside the layers, and its name there."""
    inside = name.removeprefix(f"{path}.")
    number, dot, rest = inside.partition(".")
    if inside == name or not dot or not number.isdigit():
        return None, name
    return int(number), rest


def _path_of_layers(model: nn.Module, num_layers: int) -> str | None:
    """Return the one outermost list of `num_layers` modules; None where there is no such one."""
    found: list[str] = []
    for name, module in model.named_modules():
        is_inner = any(name.startswith(f"{other}.") for other in found)
        if isinstance(module, nn.ModuleList) and len(module) == num_layers and not is_inner:
            found.append(name)
    return found[0] if len(found) == 1 else None


def _configs(model: nn.Module) -> list[Any]:
    """Return the configs that the model's modules read."""
    configs = (getattr(module, "config", None) for module in model.modules())
    return list({id(config): config for config in configs if config is not None}.values())


def _lists_of_config(model: nn.Module, num_layers: int) -> list[tuple[Any, str, Any]]:
    """Return what configs list layer by layer, such as `layer_types`; no lists of indices."""
    return [
        (config, name, values)
        for config in _configs(model)
        for name, values in vars(config).items()
        if isinstance(values, list | tuple)
        and len(values) == num_layers
        and list(values) != list(range(num_layers))
    ]


def _plain_attributes(layer: nn.Module) -> Iterator[tuple[tuple[str, str], _Plain]]:
    for name, module in layer.named_modules():
        for attribute, value in vars(module).items():
            if isinstance(value, bool | int | float | str) and attribute != "training":
                yield (name, attribute), value


def _index_attributes(layers: nn.ModuleList) -> dict[tuple[str, str], int]:
    """Return the attributes by which layers know their place, and where their counting begins."""
    offsets: dict[tuple[str, str], list[int | None]] = {}
    for index, layer in enumerate(layers):
        for key, value in _plain_attributes(layer):
            is_number = isinstance(value, int) and not isinstance(value, bool)
            offsets.setdefault(key, []).append(int(value) - index if is_number else None)
    return {
        key: found[0]
        for key, found in offsets.items()
        if found[0] is not None and len(found) > 1 and len(set(found)) == 1
    }


def _fingerprint(layer: nn.Module, indices: dict[tuple[str, str], int]) -> Hashable:
    """Return what decides which operations a layer runs: modules, shapes, and plain attributes.

    Of a float only counts whether it is 0, as a dropout or a scale that is not there.
    """
    modules = tuple((name, type(module).__qualname__) for name, module in layer.named_modules())
    shapes = tuple((n, tuple(p.shape), str(p.dtype)) for n, p in layer.named_parameters())
    attributes = tuple(
        (key, bool(value) if isinstance(value, float) else value)
        for key, value in _plain_attributes(layer)
        if key not in indices
    )
    return modules, shapes, attributes
