"""Calls of the command line, as a user makes them."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest

from autotune.cli.main import main

ON_CPU = ("run", "--model", "tiny", "--gpus", "2", "--device", "cpu", "--memory-ceiling", "1GiB")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a call of `autotune` came to."""

    code: int
    out: str
    err: str

    @property
    def faults(self) -> list[str]:
        """The messages of a call that the user got wrong; fails on anything else."""
        assert self.code == 2, self
        assert self.out == ""
        assert "Traceback" not in self.err
        lines = self.err.splitlines()
        assert lines
        assert all(line.startswith("error: ") for line in lines), self.err
        return [line.removeprefix("error: ") for line in lines]


def autotune(*arguments: str, cwd: Path, timeout_s: float = 60) -> Call:
    """Call `autotune` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "autotune.cli.main", *arguments],
        cwd=cwd,
        env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    return Call(code=done.returncode, out=done.stdout, err=done.stderr)


def autotune_here(*arguments: str, capsys: pytest.CaptureFixture[str]) -> Call:
    """Call `autotune` in this process, which is quicker; the working directory is the user's."""
    with patch.object(sys, "argv", ["autotune", *arguments]), pytest.raises(SystemExit) as ended:
        main()
    captured = capsys.readouterr()
    return Call(code=int(ended.value.code or 0), out=captured.out, err=captured.err)


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder with its content."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
