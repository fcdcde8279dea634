"""Paths and messages of findings, as CI systems expect them."""

from autotune.gate.request import STDIN
from autotune.lint.finding import Finding

_STDIN_NAME = "stdin"


def shown_path(ds_config: str) -> str:
    """Return the path of a config as a URI's path; standard input is called stdin.

    Example:
        >>> shown_path("./configs/ds.json"), shown_path("-")
        ('configs/ds.json', 'stdin')
    """
    if ds_config == STDIN:
        return _STDIN_NAME
    # A name that is not UTF-8 reaches Python as lone surrogates.
    return ds_config.removeprefix("./").encode("utf-8", "replace").decode("utf-8")


def whole_message(finding: Finding) -> str:
    """Return message and suggestion in one text."""
    if finding.suggestion is None:
        return finding.message
    return f"{finding.message}. Suggestion: {finding.suggestion}"
