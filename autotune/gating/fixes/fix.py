"""`--fix`: applies every safe fix and keeps the formatting of the file."""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from autotune.errors import GateError
from autotune.gating.accepted import read_accepted, split_accepted
from autotune.gating.fixes.json_editor import NotEditableError, edited
from autotune.gating.inputs import read_subject
from autotune.gating.request import GateRequest
from autotune.job.resolve import resolve_job
from autotune.lint.check import lint
from autotune.lint.document.document import Document, read_document
from autotune.lint.finding import Finding
from autotune.lint.subject import Subject

_MAX_ROUNDS = 20
"""A fix can lead to another finding; more rounds than this are a cycle."""
_DS_CONFIG = "ds_config"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """A config after its safe fixes."""

    before: str
    after: str
    name: str
    """The file name in the diff."""
    fixed: tuple[Finding, ...]
    loses_comments: bool = False
    """Whether it was rewritten, without comments and formatting."""

    @property
    def diff(self) -> str:
        """A unified diff; empty where nothing changes."""
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True),
            self.after.splitlines(keepends=True),
            fromfile=self.name,
            tofile=f"{self.name} (fixed)",
        )
        return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)


def fix_config(request: GateRequest, text: bytes, *, rewrite: bool = False) -> Fixed:
    """Return a config with every safe fix applied, until none is left.

    Args:
        request: config and options; ignored and accepted findings are not fixed.
        text: the config.
        rewrite: whether a text that cannot be edited is rewritten, without comments.

    Raises:
        GateError: the text cannot be edited and `rewrite` is False, or the ds_config is in another
            file that this one names.
    """
    document = read_subject(text, request)
    subject = document.subject
    if subject is not None:
        job = resolve_job(request.job, subject=subject, job_file=request.job_file)
        subject = job.subject
    before = text.decode("utf-8", errors="replace")
    unchanged = Fixed(before=before, after=before, name=request.ds_config, fixed=())
    # Fixes change keys of a ds_config, which the file of another program does not have.
    if subject is None or subject.form != _DS_CONFIG:
        return unchanged
    config, fixed = _apply_fixes(subject, request)
    if not fixed:
        return unchanged
    if document.name != request.ds_config:
        raise GateError(
            f"--fix {request.ds_config}: the ds_config is in another file; use --fix on "
            f"{document.name}"
        )
    after = _edited_or_none(before, config, document)
    if after is None and not rewrite:
        raise GateError(
            f"--fix {request.ds_config}: not plain JSON, so comments and formatting would be lost; "
            "write the fixed config elsewhere with --fix-output FILE"
        )
    rewritten = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    return replace(unchanged, after=after or rewritten, fixed=fixed, loses_comments=after is None)


def _apply_fixes(
    subject: Subject, request: GateRequest
) -> tuple[Mapping[str, Any], tuple[Finding, ...]]:
    """Return the fixed config, and the findings that are fixed."""
    entries = read_accepted(request.accepted) if request.accepted else ()
    fixed: list[Finding] = []
    for _ in range(_MAX_ROUNDS):
        counting, _accepted = split_accepted(lint(subject, ignore=request.ignore), entries)
        finding = next((f for f in counting if f.fix is not None), None)
        if finding is None or finding.fix is None:
            break
        config = finding.fix.applied(subject.config)
        if config == subject.config:
            break
        subject = replace(subject, config=config)
        fixed.append(finding)
    return subject.config, tuple(fixed)


def _edited_or_none(text: str, config: Mapping[str, Any], document: Document) -> str | None:
    """Return the edited text if it reads back as the config; else None."""
    assert document.subject is not None
    try:
        changed = edited(text, document.subject.config, config)
    except NotEditableError:
        return None
    launch = document.subject.launch
    read = read_document(changed.encode(), name=document.name, launch=launch).subject
    return changed if read is not None and read.config == config else None
