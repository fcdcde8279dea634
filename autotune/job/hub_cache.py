"""Finds models of the Hugging Face Hub in the local cache."""

import os
import re
from pathlib import Path

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?")


def is_hub_name(name: str) -> bool:
    """Whether a name has the form of a Hub model: ORG/NAME, or NAME for the oldest ones."""
    return _HUB_NAME.fullmatch(name) is not None and not name.endswith(".json")


def cached_config(name: str) -> Path | None:
    """Return the `config.json` of a model in the local Hugging Face cache; None if it is missing.

    The network is never used. Of several revisions it is the one that `main` points to, else the
    newest.

    Args:
        name: of the model on the Hub.
    """
    repository = hub_cache() / f"models--{name.replace('/', '--')}"
    try:
        revision = (repository / "refs" / "main").read_text(encoding="utf-8").strip()
        named = repository / "snapshots" / revision / "config.json"
        if revision and named.is_file():
            return named
    except (OSError, ValueError):
        pass
    found = [path for path in repository.glob("snapshots/*/config.json") if path.is_file()]
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def hub_cache() -> Path:
    """Return the folder of the local Hugging Face cache, as huggingface_hub finds it."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if value := os.environ.get(variable):
            return Path(value).expanduser()
    if home := os.environ.get("HF_HOME"):
        return Path(home).expanduser() / "hub"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "huggingface" / "hub"
