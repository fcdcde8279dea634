"""Fixtures of the gate's tests."""

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.gating.records import written_study


@pytest.fixture(scope="session")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of a study, and its record."""
    folder = tmp_path_factory.mktemp("studies") / "s"
    return folder, written_study(folder)


@pytest.fixture
def record(study: tuple[Path, dict[str, Any]]) -> dict[str, Any]:
    """A record that a test may change."""
    return copy.deepcopy(study[1])
