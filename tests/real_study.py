"""One study of two real CPU ranks, from the command line, for every test that looks at one."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.calls import ON_CPU, Call, autotune

NUM_TRIALS = 8
_NAME = "e2e"


@dataclass(frozen=True, slots=True, kw_only=True)
class RealStudy:
    """A study that has ended. Nobody changes its files."""

    home: Path
    """Where `autotune` was called."""
    call: Call

    @property
    def name(self) -> str:
        """What the user called it."""
        return _NAME

    @property
    def folder(self) -> Path:
        """Its files; fails if the call did."""
        assert self.call.code == 0, self.call.err
        return self.home / "studies" / _NAME

    def read_record(self) -> dict[str, Any]:
        """Return its record, which the caller may change."""
        record: dict[str, Any] = json.loads((self.folder / "record.json").read_text("utf-8"))
        return record


def run_real_study(home: Path) -> RealStudy:
    """Search and confirm."""
    options = ["--trials", str(NUM_TRIALS), "--confirm-rounds", "2", "--seed", "1"]
    # Most of its time goes into the confirmation's whole steps; a quarter of the default will do.
    options += ["--global-batch-size", "16", "--study", _NAME, "--json"]
    call = autotune(*ON_CPU, *options, cwd=home, timeout_s=280)
    return RealStudy(home=home, call=call)
