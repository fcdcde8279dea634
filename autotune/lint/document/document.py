"""Turns a config file of any format into a subject for the rules."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autotune.job.launcher import Launcher
from autotune.lint.document import accelerate, neox
from autotune.lint.document.accelerate_faults import accelerate_faults
from autotune.lint.document.decode import NoText, decode
from autotune.lint.document.embedded_config import elsewhere, inner_config
from autotune.lint.document.json_text import read_json
from autotune.lint.document.reading import Reading, finding
from autotune.lint.document.reading_rules import ACCELERATE, DECIMAL_COMMA, HJSON_ONLY, NOT_READABLE
from autotune.lint.document.yaml_text import read_yaml
from autotune.lint.finding import Finding, Severity
from autotune.lint.subject import Launch, Subject

_YAML_SUFFIXES = (".yaml", ".yml")
_JSON_SUFFIXES = (".json", ".hjson")
_BRACED = re.compile(r"\s*(?:(?:#|//)[^\r\n]*+\s*+)*+[{\[]")
"""JSON and Hjson start with a bracket, after comments; YAML seldom does."""
_KINDS = {type(None): "nothing", list: "a list", str: "a string", bool: "a boolean"}
_TWO_BETAS_CUT = 4
"""How many numbers two betas with decimal commas are read as."""
_KEY = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file and the config in it."""

    name: str
    """Of the file that lines and columns refer to."""
    subject: Subject | None
    """None where there is nothing to check; then a finding gives the reason."""
    findings: tuple[Finding, ...] = ()
    """Faults found while reading."""
    spellings: Mapping[str, str] = field(default_factory=dict)
    """The file's names of ds_config keys where they differ, as in an Accelerate YAML."""

    def in_file_words(self, found: Finding) -> Finding:
        """Return a finding with the file's names of keys.

        A fix names ds_config keys and cannot be applied to such a file, so it is dropped.
        """
        if not self.spellings:
            return found
        field = self._spelled(found.field)
        # A word such as fp16 is a key only where it is the finding's field.
        words = {key: spelled for key, spelled in self.spellings.items() if "." in key}
        words |= {_leaf(found.field): _leaf(field), found.field: field}

        def renamed(text: str) -> str:
            return _KEY.sub(lambda key: words.get(key[0], key[0]), text)

        return replace(
            found,
            field=field,
            message=renamed(found.message),
            suggestion=found.suggestion and renamed(found.suggestion),
            fix=None,
        )

    def _spelled(self, key: str) -> str:
        parts = key.split(".")
        for length in range(len(parts), 0, -1):
            head = ".".join(parts[:length])
            if head in self.spellings:
                return ".".join([self.spellings[head], *parts[length:]])
        return key


def read_document(
    data: bytes | str, *, name: str, launch: Launch, folder: Path | None = None
) -> Document:
    """Read a config in any supported format.

    Args:
        data: the content of the file.
        name: of the file, `-` for stdin; its suffix tells YAML from JSON.
        launch: the planned run; the file fills what it does not give.
        folder: where to look for a file that an Accelerate YAML names; None does not look.
    """
    decoded = decode(data.encode(errors="surrogatepass") if isinstance(data, str) else data)
    if isinstance(decoded, NoText):
        fault = finding(
            NOT_READABLE,
            f"not readable: {decoded.reason}",
            at=(decoded.line, decoded.column),
            suggestion=decoded.suggestion,
        )
        return Document(name=name, subject=None, findings=(fault,))
    reading = _read(decoded.text, name=name, launcher=launch.launcher)
    if decoded.byte_order_mark and Path(name).suffix.lower() not in _YAML_SUFFIXES:
        reading = replace(reading, findings=(_byte_order_mark(launch.launcher), *reading.findings))
    return _document(reading, name=name, launch=launch, folder=folder)


def _leaf(key: str) -> str:
    return key.rpartition(".")[2]


def _read(text: str, *, name: str, launcher: Launcher) -> Reading:
    suffix = Path(name).suffix.lower()
    braced = _BRACED.match(text) is not None
    if suffix not in _YAML_SUFFIXES:
        return read_json(text, launcher) if braced or suffix in _JSON_SUFFIXES else read_yaml(text)
    if braced:
        # A .yaml file may contain JSON; then the faults of JSON are reported.
        reading = read_json(text, launcher)
        if reading.value is not None and not any(f.rule == HJSON_ONLY.id for f in reading.findings):
            return reading
    return read_yaml(text)


def _byte_order_mark(launcher: Launcher) -> Finding:
    return finding(
        HJSON_ONLY,
        "the file starts with a byte order mark: DeepSpeed's hjson ignores it, and json, which "
        "Hugging Face uses, refuses it",
        at=(1, 1),
        suggestion="save it as UTF-8 without a byte order mark",
        severity=Severity.ERROR if launcher is Launcher.HF else Severity.WARNING,
    )


def _document(reading: Reading, *, name: str, launch: Launch, folder: Path | None) -> Document:
    value = reading.value
    if not isinstance(value, Mapping):
        found = reading.findings or (_no_mapping(value),)
        return Document(name=name, subject=None, findings=found)
    if accelerate.is_accelerate(value):
        return _accelerate(reading, name=name, launch=launch, folder=folder)
    if (fault := elsewhere(reading)) is not None:
        return Document(name=name, subject=None, findings=(*reading.findings, fault))
    spellings: Mapping[str, str] = {}
    if neox.is_neox(value):
        subject, spellings = neox.subject_of(reading, launch), neox.spellings(value)
    else:
        reading = inner_config(reading)
        subject = Subject(config=reading.value, launch=launch, positions=reading.positions)
    found = (*reading.findings, *_commas_in_lists(subject))
    return Document(name=name, subject=subject, findings=found, spellings=spellings)


def _no_mapping(value: Any) -> Finding:
    kind = _KINDS.get(type(value), "a number")
    return finding(
        NOT_READABLE,
        f"not a config: the file contains {kind}, not a mapping",
        suggestion='a ds_config is a mapping: {"train_batch_size": 32}',
    )


def _commas_in_lists(subject: Subject) -> Iterator[Finding]:
    """Yield an error where `[0,9, 0,999]` was read as four numbers."""
    for key, value in subject.flat.items():
        if not key.endswith("betas") or not isinstance(value, list) or len(value) != _TWO_BETAS_CUT:
            continue
        line, column = subject.position(key)
        yield finding(
            DECIMAL_COMMA,
            f"{key}={value}: four numbers instead of two; a decimal comma splits a number",
            field=key,
            at=None if line is None or column is None else (line, column),
            suggestion="write decimal points: [0.9, 0.999]",
        )


def _accelerate(reading: Reading, *, name: str, launch: Launch, folder: Path | None) -> Document:
    found = (*reading.findings, *accelerate_faults(reading, launch))
    named = accelerate.section_of(reading.value).get("deepspeed_config_file")
    if named is None:
        subject = accelerate.subject_of(reading, launch)
        return Document(name=name, subject=subject, findings=found, spellings=accelerate.SPELLINGS)
    if any(fault.severity is Severity.ERROR for fault in found):
        return Document(name=name, subject=None, findings=found)
    data = None if folder is None else _content(folder / str(named))
    if data is None:
        not_there = finding(
            ACCELERATE,
            f"{accelerate.FILE_KEY}={named} is not next to {name}: its settings are not checked",
            field=accelerate.FILE_KEY,
            suggestion="check that file",
            severity=Severity.NOTE,
        )
        return Document(name=name, subject=None, findings=(*found, not_there))
    inner = read_document(data, name=str(named), launch=accelerate.launch_of(reading.value, launch))
    outer = (replace(fault, line=None, column=None) for fault in found)
    return replace(inner, findings=(*outer, *inner.findings))


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.is_file() else None
    except (OSError, ValueError):  # a name may contain a zero byte
        return None
