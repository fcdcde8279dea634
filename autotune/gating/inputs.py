"""Reads the config that a request names."""

import sys
from pathlib import Path

from autotune.errors import ConfigError
from autotune.gating.request import STDIN, GateRequest
from autotune.job.resolve import launcher_of
from autotune.lint.document.document import Document, read_document
from autotune.lint.subject import Launch


def read_config(ds_config: str) -> bytes:
    """Return the bytes of the config; faults inside it become findings, not errors.

    Raises:
        ConfigError: the file is missing or cannot be opened.
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
    """Return the parsed config, with the faults of its text."""
    ds_config = request.ds_config
    folder = None if ds_config == STDIN else Path(ds_config).parent
    launch = Launch(launcher=launcher_of(request.job, request.job_file))
    return read_document(text, name=ds_config, launch=launch, folder=folder)
