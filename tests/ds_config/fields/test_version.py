"""The table of the installed DeepSpeed is used; one that is not shipped is made once and kept."""

import json
from collections.abc import Iterator
from importlib import metadata, resources
from pathlib import Path

import pytest

from autotune.ds_config.fields import version
from autotune.ds_config.fields.version import TableSource, cache_folder, table_version

SHIPPED = ("0.18.0", "0.19.8", "0.20.0")


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    table_version.cache_clear()
    yield
    table_version.cache_clear()


def pretend(monkeypatch: pytest.MonkeyPatch, installed: str) -> None:
    monkeypatch.setattr(metadata, "version", lambda _name: installed)


def test_the_table_of_the_installed_version_is_shipped() -> None:
    found = table_version()
    assert (found.how, found.table) == (TableSource.SHIPPED, found.installed)
    assert found.description == "table of fields"


@pytest.mark.parametrize(
    ("installed", "table"),
    [("0.19.9+unknown", "0.19.8"), ("0.18.1", "0.18.0"), ("0.1.0", "0.18.0"), ("1.0", "0.20.0")],
)
def test_the_nearest_version_that_is_not_newer_is_taken_if_none_can_be_made(
    installed: str, table: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in SHIPPED:
        (tmp_path / f"fields_deepspeed_{name}.json").write_text("{}")
    monkeypatch.setattr(resources, "files", lambda _package: tmp_path)
    monkeypatch.setattr(version, "_make_table", lambda _folder: "no DeepSpeed here")
    pretend(monkeypatch, installed)
    found = table_version()
    assert (found.table, found.how) == (table, TableSource.NEAREST)
    assert f"table of fields of {table}; {installed.split('+')[0]} is installed" in (
        found.description
    )


def test_a_table_that_is_not_shipped_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def make_table(folder: Path) -> None:
        calls.append(folder)
        table = {"deepspeed": "0.99.0", "fields": {}}
        (folder / "fields_deepspeed_0.99.0.json").write_text(json.dumps(table))

    monkeypatch.setattr(version, "_make_table", make_table)
    pretend(monkeypatch, "0.99.0+cu128")
    for _ in range(2):
        found = table_version()
        assert (found.table, found.how) == ("0.99.0", TableSource.MADE)
        assert version.read_table()["deepspeed"] == "0.99.0"
        table_version.cache_clear()
    assert len(calls) == 1
    assert [path.name for path in cache_folder().iterdir()] == ["fields_deepspeed_0.99.0.json"]


def test_a_failure_is_remembered_and_asks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def make_table(folder: Path) -> str:
        calls.append(folder)
        return "ImportError: no such module"

    monkeypatch.setattr(version, "_make_table", make_table)
    pretend(monkeypatch, "0.99.0")
    for _ in range(2):
        assert table_version().how is TableSource.NEAREST
        table_version.cache_clear()
    assert len(calls) == 1
    [note] = cache_folder().iterdir()
    assert "no such module" in note.read_text()


def test_a_cache_that_cannot_be_written_does_no_harm(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    pretend(monkeypatch, "0.99.0")
    assert table_version().how is TableSource.NEAREST


def test_without_deepspeed_the_newest_table_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_found(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", not_found)
    found = table_version()
    assert (found.installed, found.how) == (None, TableSource.NEWEST)
    assert found.description.endswith("DeepSpeed is not installed")


def test_a_table_is_made_by_the_installed_deepspeed(tmp_path: Path) -> None:
    assert version._make_table(tmp_path) is None
    shipped = table_version().path
    assert (tmp_path / shipped.name).read_text() == shipped.read_text()
