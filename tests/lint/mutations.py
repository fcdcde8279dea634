"""Configs that people might hand in by mistake: sound ones, mutated at random from a seed."""

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from autotune.ds_config.build import build_ds_config
from autotune.ds_config.fields.table import known_fields
from tests.lint.cases import all_cases
from tests.search.setting import tiny_workload

Config: TypeAlias = dict[str, Any]

VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    2,
    -1,
    16,
    2.0,
    5e8,
    0.5,
    1.5,
    10**30,
    1e300,
    "0",
    "1",
    "8",
    "5e8",
    "0.5",
    "true",
    "false",
    "auto",
    "cpu",
    "",
    "x",
    "größer ✓",
    [],
    [1],
    ["x"],
    [2, 3],
    {},
    {"x": 1},
    {"enabled": True},
    {"enabled": {"enabled": [{}]}},
    [[{"stage": 1}]],
)


def seed_configs() -> list[Config]:
    """Return the configs of the cases that are JSON, and some that `autotune run` builds."""
    configs = []
    for case in all_cases():
        try:
            configs.append(json.loads(case.ds_config.read_text(encoding="utf-8")))
        except ValueError:
            continue
    workload = tiny_workload(global_batch_size=24)
    zero = "zero_optimization"
    for stage in (1, 2, 3):
        proposal = {
            f"{zero}.stage": stage,
            f"{zero}.reduce_bucket_size": 10_000_000,
            f"{zero}.offload_optimizer.device": "cpu",
        }
        configs.append(build_ds_config({}, workload, proposal))
    return configs


def mutated(seed: int, count: int) -> Iterator[Config]:
    """Yield configs, each a sound one with one or two mutations."""
    chance = random.Random(seed)
    seeds = seed_configs()
    for _ in range(count):
        config = copy.deepcopy(chance.choice(seeds))
        for _ in range(chance.randint(1, 2)):
            chance.choice(MUTATIONS)(config, chance)
        yield config


def _sections(config: Config) -> list[Config]:
    """Return the config and every section in it."""
    found = [config]
    for value in config.values():
        if isinstance(value, dict):
            found += _sections(value)
    return found


def _section_with_keys(config: Config, chance: random.Random) -> Config | None:
    sections = [section for section in _sections(config) if section]
    return chance.choice(sections) if sections else None


def _delete(config: Config, chance: random.Random) -> None:
    section = _section_with_keys(config, chance)
    if section is not None:
        del section[chance.choice(list(section))]


def _retype(config: Config, chance: random.Random) -> None:
    section = _section_with_keys(config, chance)
    if section is not None:
        section[chance.choice(list(section))] = copy.deepcopy(chance.choice(VALUES))


def _rename(config: Config, chance: random.Random) -> None:
    section = _section_with_keys(config, chance)
    if section is None:
        return
    key = chance.choice(list(section))
    place = chance.randrange(len(key) + 1)
    spellings = (
        key[:place] + key[place + 1 :],
        key[:place] + chance.choice("aez_.é") + key[place:],
        key.upper(),
        key.removeprefix("stage3_"),
        f"_{key}",
    )
    section[chance.choice(spellings)] = section.pop(key)


def _set_known(config: Config, chance: random.Random) -> None:
    """Set any field of the table, so that every field is tried."""
    field = chance.choice(list(known_fields().values()))
    name = chance.choice((field.key, *field.aliases))
    *path, leaf = name.split(".")
    section = config
    for part in path:
        if not isinstance(section.get(part), dict):
            section[part] = {}
        section = section[part]
    section[leaf] = copy.deepcopy(chance.choice((field.default, *VALUES)))


def _move(config: Config, chance: random.Random) -> None:
    """Move a key to another section."""
    section = _section_with_keys(config, chance)
    if section is not None:
        key = chance.choice(list(section))
        value = section.pop(key)
        chance.choice(_sections(config))[key] = value


def _nest(config: Config, chance: random.Random) -> None:
    section = _section_with_keys(config, chance)
    if section is not None:
        key = chance.choice(list(section))
        section[key] = {key: section[key]}


MUTATIONS: tuple[Callable[[Config, random.Random], None], ...] = (
    _delete,
    _rename,
    _retype,
    _retype,
    _set_known,
    _set_known,
    _move,
    _nest,
)
