"""Reads the user's ds_config in any form that the gate reads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.errors import ConfigError
from autotune.job.launcher import Launcher
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
        return Subject(config=source)
    path = source
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file") from error
    except OSError as error:
        raise ConfigError(f"{path}: not readable: {error.strerror}") from error
    document = read_document(
        data, name=str(path), launch=Launch(launcher=launcher), folder=path.parent
    )
    errors = [f for f in document.findings if f.severity is Severity.ERROR]
    if document.subject is None or errors:
        raise ConfigError(
            *(f"{path}: {finding.message}" for finding in errors or document.findings)
        )
    if not document.subject.config:
        raise ConfigError(f"{path}: holds an empty mapping, not a ds_config")
    return document.subject
