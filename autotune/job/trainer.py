"""The Hugging Face Trainer's arguments, and its values for "auto".

Source: transformers 5.24, training_args.py (the defaults) and integrations/deepspeed.py.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.errors import JobError
from autotune.job.job import Job

DEFAULT_MICRO_BATCH = 8
"""`per_device_train_batch_size` of TrainingArguments."""
_LENGTHS = ("max_length", "max_seq_length", "cutoff_len", "model_max_length", "block_size")
"""Names of the length in programs on top of the Trainer (TRL, LLaMA-Factory, the examples)."""


def read_hf_args(path: Path) -> Mapping[str, Any]:
    """Read a JSON file of TrainingArguments.

    Raises:
        JobError: it cannot be read, or is not a mapping.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise JobError(f"--hf-args {path}: no such file") from error
    except OSError as error:
        raise JobError(f"--hf-args {path}: not readable: {error.strerror}") from error
    except ValueError as error:  # bad JSON and bad UTF-8 alike
        raise JobError(f"--hf-args {path}: not readable as JSON: {error}") from error
    if not isinstance(content, dict):
        raise JobError(f"--hf-args {path}: holds a {type(content).__name__}, not TrainingArguments")
    return content


def job_of_hf_args(arguments: Mapping[str, Any]) -> Job:
    """Return the job of TrainingArguments, without the batch sizes (`micro_batch_of`)."""
    checkpointing = arguments.get("gradient_checkpointing")
    optimizer = arguments.get("optim")
    lengths = (positive(arguments.get(name)) for name in _LENGTHS)
    return Job(
        seq_len=next((length for length in lengths if length is not None), None),
        # The Trainer's default is fp32.
        precision=next((name for name in ("bf16", "fp16") if arguments.get(name) is True), "fp32"),
        activation_checkpointing=checkpointing if isinstance(checkpointing, bool) else None,
        client_optimizer=optimizer if isinstance(optimizer, str) else None,
    )


def micro_batch_of(arguments: Mapping[str, Any]) -> int:
    """Return the sequences of a micro step; the Trainer's default if none are given."""
    return positive(arguments.get("per_device_train_batch_size")) or DEFAULT_MICRO_BATCH


def accumulation_of(arguments: Mapping[str, Any]) -> int:
    """Return the micro steps of an optimizer step."""
    return positive(arguments.get("gradient_accumulation_steps")) or 1


def positive(value: object) -> int | None:
    """Return a whole number of at least 1, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 1 <= value < float("inf") else None
