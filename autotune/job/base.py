"""Reads the user's ds_config in any form that the gate reads."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.errors import ConfigError
from autotune.job.launcher import Launcher
from autotune.lint.document.accelerate import CPU_THREADS
from autotune.lint.document.document import read_document
from autotune.lint.finding import Severity
from autotune.lint.subject import Launch, Subject


def read_base(
    source: Path | Mapping[str, Any], *, launcher: Launcher = Launcher.DEEPSPEED
) -> Subject:
    """Read JSON, Hjson, an Accelerate YAML or a gpt-neox YAML.

    Args:
        source: the file, or its parsed content.
        launcher: what reads it first; an Accelerate YAML overrides it.

    Returns:
        The config, with the launch settings of the file.

    Raises:
        ConfigError: no such file, or it holds no ds_config; every fault is named.
    """
    if isinstance(source, Mapping):
        if not source:
            return Subject(config=source)
        data, name, folder = json.dumps(source).encode(), "ds_config", None
    else:
        data, name, folder = _bytes_of(source), str(source), source.parent
    document = read_document(data, name=name, launch=Launch(launcher=launcher), folder=folder)
    errors = [
        finding
        for finding in document.findings
        # Only accelerate launch refuses this key, which is not in the ds_config.
        if finding.severity is Severity.ERROR and finding.field != CPU_THREADS
    ]
    if document.subject is None or errors:
        raise ConfigError(
            *(f"{name}: {finding.message}" for finding in errors or document.findings)
        )
    if not document.subject.config:
        raise ConfigError(f"{name}: holds an empty mapping, not a ds_config")
    return document.subject


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file") from error
    except OSError as error:
        raise ConfigError(f"{path}: not readable: {error.strerror}") from error
