"""From the request to what is judged: the text of the config, and what is wrong with it."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.errors import ConfigError, GateError
from autotune.gating.request import STDIN, GateRequest
from autotune.job.resolve import launcher_of
from autotune.lint.document.document import Document, read_document
from autotune.lint.subject import Launch


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


def read_subject(text: bytes, request: GateRequest) -> Document:
    """Return the config of a text, and what is wrong with the text."""
    ds_config = request.ds_config
    folder = None if ds_config == STDIN else Path(ds_config).parent
    launch = Launch(launcher=launcher_of(request.job, request.job_file))
    return read_document(text, name=ds_config, launch=launch, folder=folder)


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
