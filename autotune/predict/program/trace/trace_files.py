"""Traced programs in the user's cache folder."""

import hashlib
from dataclasses import asdict
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from autotune.job.model_shape import ModelShape
from autotune.predict.program.events import ENTER, FETCH, RELEASE, Event, Parameter, Program
from autotune.predict.program.items import Part
from autotune.predict.program.user_cache import read_cached, write_cached
from autotune.predict.training_job import Training

_KIND = "traces"


def read_trace(training: Training) -> Program | None:
    """Return the program of a job that was traced before; None where there is none."""
    kept = read_cached(_KIND, _key(training))
    try:
        return None if kept is None else _program(kept)
    except (LookupError, TypeError, ValueError):
        return None


def write_trace(training: Training, program: Program) -> None:
    """Keep the program of a job."""
    content = {
        "parameters": [list(asdict(parameter).values()) for parameter in program.parameters],
        "events": program.events,
        "num_slots": program.num_slots,
    }
    write_cached(_KIND, _key(training), content)


def model_key(shape: ModelShape) -> dict[str, Any]:
    """Return what all that is found out about a model depends on, this package's code included."""
    return {
        "code": _code(),
        "torch": version("torch"),
        "transformers": version("transformers"),
        "num_hidden_layers": shape.num_hidden_layers,
        "hf_config": dict(shape.hf_config),
    }


def _key(training: Training) -> dict[str, Any]:
    return model_key(training.model) | {
        "micro_batch_size": training.micro_batch_size,
        "seq_len": training.seq_len,
        "precision": training.precision,
        "activation_checkpointing": training.activation_checkpointing,
        "attn_implementation": training.attn_implementation,
        "expert_parallel_size": training.expert_parallel_size,
    }


def _program(kept: dict[str, Any]) -> Program:
    return Program(
        tuple(Parameter(*values) for values in kept["parameters"]),
        tuple(_event(*event) for event in kept["events"]),
        int(kept["num_slots"]),
    )


def _event(kind: int, first: Any, second: Any, third: int) -> Event:
    if kind in (FETCH, RELEASE):
        first = tuple(first)
    elif kind == ENTER:
        first = Part(first)
    return kind, first, second, third


@lru_cache(maxsize=1)
def _code() -> str:
    """Return a digest of the code that makes traces and says what is in them."""
    here = Path(__file__).parent
    files = [*here.glob("*.py"), *(here.parent / f"{name}.py" for name in ("events", "experts"))]
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]
