"""From the request to what is judged: the config's text, and how it will be launched."""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.errors import ConfigError, GateError, NotJudgedError
from autotune.gate.request import STDIN, GateRequest
from autotune.job.model_shape import ModelShape, load_model_shape
from autotune.lint.document.document import Document, read_document
from autotune.lint.subject import Launch, Launcher


def read_config(ds_config: str) -> bytes:
    """Return the config as it is; what is wrong inside is a finding, not an error.

    Raises:
        ConfigError: no such file, or it cannot be opened.
    """
    if ds_config == STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(ds_config).read_bytes()
    except FileNotFoundError as error:
        raise ConfigError(f"{ds_config}: no such file") from error
    except OSError as error:
        raise ConfigError(f"{ds_config}: not readable: {error.strerror}") from error


def read_subject(text: bytes, ds_config: str, *, launch: Launch) -> Document:
    """Return the config of a text, and what is wrong with the text."""
    folder = None if ds_config == STDIN else Path(ds_config).parent
    return read_document(text, name=ds_config, launch=launch, folder=folder)


def planned_launch(request: GateRequest) -> Launch:
    """Return the planned run, as far as the request tells.

    Raises:
        AutotuneError: the model or the file of TrainingArguments cannot be read.
    """
    shape = model_shape(request)
    hf_args = read_hf_args(request.hf_args) if request.hf_args else None
    params, trainable = request.params, request.trainable_params
    launch = Launch(
        launcher=request.launcher or (Launcher.HF if hf_args is not None else Launcher.DEEPSPEED),
        gpus=request.gpus,
        nodes=request.nodes,
        pipeline_stages=request.pipeline_stages,
        tensor_parallel=request.tensor_parallel,
        client_optimizer=request.client_optimizer,
        hf_args=hf_args,
        model=shape,
        num_trainable=None if trainable is None else round(trainable),
        largest_parameter=request.largest_parameter,
        seq_len=request.seq_len,
        activation_checkpointing=_checkpoints(request, hf_args),
    )
    if shape is not None:
        return replace(launch, num_parameters=shape.num_parameters)
    return replace(launch, num_parameters=None if params is None else round(params))


def model_shape(request: GateRequest) -> ModelShape | None:
    """Return the model's shape; None where it is not named, or is of a kind without one.

    Raises:
        WorkloadError: there is no such model, or its config lacks dimensions.
    """
    if request.model is None:
        return None
    try:
        return load_model_shape(request.model)
    except NotJudgedError:
        # Its ds_config can be checked all the same; `memory_setting` says why memory is not.
        return None


def read_hf_args(path: Path) -> Mapping[str, Any]:
    """Read a JSON file of TrainingArguments.

    Raises:
        GateError: it cannot be read, or is no mapping.
    """
    return read_json_mapping(path, option="--hf-args", what="TrainingArguments")


def read_json_mapping(path: Path, *, option: str, what: str) -> Mapping[str, Any]:
    """Read a JSON file that holds a mapping.

    Raises:
        GateError: it cannot be read, or is no mapping.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise GateError(f"{option} {path}: no such file") from error
    except OSError as error:
        raise GateError(f"{option} {path}: not readable: {error.strerror}") from error
    except ValueError as error:  # bad JSON and bad UTF-8 alike
        raise GateError(f"{option} {path}: not readable as JSON: {error}") from error
    if not isinstance(content, dict):
        raise GateError(f"{option} {path}: holds a {type(content).__name__}, not {what}")
    return content


def _checkpoints(request: GateRequest, hf_args: Mapping[str, Any] | None) -> bool | None:
    """Return what is known of activation checkpointing; the option goes before the arguments."""
    if request.activation_checkpointing is not None:
        return request.activation_checkpointing
    said = (hf_args or {}).get("gradient_checkpointing")
    return said if isinstance(said, bool) else None
