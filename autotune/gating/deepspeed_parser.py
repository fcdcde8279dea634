"""`--ask-deepspeed`: parses a config with the installed DeepSpeed, in a subprocess."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autotune import dotted
from autotune.ds_config.build import BATCH_KEYS, MICRO_BATCH
from autotune.errors import ConfigError
from autotune.job.launcher import Launcher
from autotune.lint.finding import Finding, Severity
from autotune.lint.rule_info import RuleInfo
from autotune.lint.subject import Subject

_LINK = re.compile(r" For further information visit \S+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParserAnswer:
    """The answer of DeepSpeed's parser."""

    version: str
    refusal: str | None
    """Why it refuses the config; None if it accepts it."""


def deepspeed_refuses(subject: Subject, answer: ParserAnswer) -> Iterator[Finding]:
    """The installed DeepSpeed's parser refuses the config.

    With `--ask-deepspeed` the real `DeepSpeedConfig` parses the config at the planned number of
    data-parallel ranks, in addition to the rules. It does not find faults that only
    `deepspeed.initialize` asserts.

    Suggestion: fix the key in the message. If this is the only error, a rule is missing: please
    report it with the config.
    """
    if answer.refusal is not None:
        yield REFUSES.finding(
            _field(subject, answer.refusal),
            f"DeepSpeed {answer.version} refuses the config: {answer.refusal}",
        )


REFUSES = RuleInfo.of(deepspeed_refuses, "deepspeed-refuses", Severity.ERROR)
RULE_INFOS = (REFUSES,)


def ask_deepspeed(ds_config: Mapping[str, Any], *, world_size: int) -> ParserAnswer:
    """Parse a config with the installed DeepSpeed; takes seconds.

    Raises:
        ConfigError: DeepSpeed is not installed, or its process failed.
    """
    if importlib.util.find_spec("deepspeed") is None:
        raise ConfigError("DeepSpeed is not installed in this environment")
    done = subprocess.run(
        [sys.executable, "-m", "autotune.trial.ask_deepspeed"],
        input=json.dumps({"ds_config": ds_config, "world_size": world_size}),
        capture_output=True,
        text=True,
        env=os.environ | {"DS_ACCELERATOR": "cpu"},
        check=False,
    )
    if done.returncode != 0:
        raise ConfigError(f"DeepSpeed's process failed: {done.stderr.strip()[-600:]}")
    answer = json.loads(done.stdout.splitlines()[-1])
    refusal = answer["refusal"]
    return ParserAnswer(
        version=answer["version"], refusal=None if refusal is None else _LINK.sub("", refusal)
    )


def as_deepspeed_sees_it(subject: Subject) -> tuple[dict[str, Any], int]:
    """Return the config that the parser gets, and the number of ranks.

    Under Hugging Face every "auto" is resolved before DeepSpeed sees it, so those keys are left
    out. If the number of ranks is not known, batch sizes cannot be checked and are left out too.
    """
    config = dotted.without(subject.config, frozenset())
    if subject.launch.launcher is Launcher.HF:
        autos = {key for key, value in subject.flat.items() if value == "auto"}
        config = dotted.without(config, frozenset(autos))
        if not BATCH_KEYS & config.keys():
            config[MICRO_BATCH] = 1
    ranks = subject.launch.data_parallel
    if ranks is None:
        config = {key: value for key, value in config.items() if key not in BATCH_KEYS}
        return config | {MICRO_BATCH: 1}, 1
    return config, ranks


def _field(subject: Subject, refusal: str) -> str:
    """Return the key that a refusal names; empty if it names none or several."""
    words = set(re.findall(r"\w+", refusal))
    named = [key for key in subject.flat if key.rpartition(".")[2] in words]
    return named[0] if len(named) == 1 else ""
