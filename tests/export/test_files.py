"""The study folder's files, written from a study of the fake evaluator."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import ExportError
from autotune.export import write_study_files
from autotune.export.record import exported_ds_config
from autotune.search.progress import Silent
from autotune.study.store import StoredStudy
from autotune.study.view import StudyView
from autotune.tuning import run_study
from tests.asked import tune_request
from tests.cli.calls import autotune, autotune_here, tree
from tests.export.recompute import check_numbers
from tests.search.setting import FEW_POINTS, Setting, setting, small_space

BASE = {
    "train_micro_batch_size_per_gpu": "auto",
    "zero_optimization": {"stage": 2, "round_robin_gradients": True, "reduce_bucket_size": "auto"},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "torch_adam": True}},
    "steps_per_print": 17,
}
FILES = ["ds_config.json", "record.json", "trials.csv"]


@pytest.fixture(scope="module", params=["faster", "equal"])
def here(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """A study whose winner is faster than the base, and one that keeps it."""
    folder = tmp_path_factory.mktemp("home") / "studies" / "s"
    base: dict[str, Any] = BASE if request.param == "faster" else {}
    here = setting(folder, base=base, on_disk=True, noise=0.002, space=small_space(FEW_POINTS))
    trials = 26 if request.param == "faster" else 9
    run_study(
        here.open(),
        here.evaluator,
        here.folder,
        request=tune_request(model="tiny", gpus=2, trials=trials, confirm_rounds=4),
        progress=Silent(),
    )
    return here


@pytest.fixture(scope="module")
def view(here: Setting) -> StudyView:
    return StudyView.of(StoredStudy("s", here.url, create=False))


@pytest.fixture(scope="module")
def record(here: Setting) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((here.folder / "record.json").read_text(encoding="utf-8"))
    return loaded


def test_every_file_is_rebuilt_from_the_storage_alone(
    here: Setting,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    call = autotune_here("export", "s", "--storage", here.url, "--folder", "again", capsys=capsys)
    assert call.code == 0
    original = {name: (here.folder / name).read_bytes() for name in FILES}
    assert tree(tmp_path / "again") == original


def _folder_on_a_file(tmp_path: Path) -> Path:
    (tmp_path / "a-file").write_text("mine", encoding="utf-8")
    return tmp_path / "a-file"


def _folder_that_cannot_be(_: Path) -> Path:
    return Path("/proc/x")


def _table_is_a_folder(tmp_path: Path) -> Path:
    (tmp_path / "trials.csv").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("target", "says"),
    [
        (_folder_on_a_file, "a-file: is a file, where a folder is needed"),
        (_folder_that_cannot_be, "/proc/x: cannot be created: No such file or directory"),
        (_table_is_a_folder, "trials.csv: cannot be written: Is a directory"),
    ],
)
def test_a_folder_that_cannot_be_written_is_reported_and_nothing_is_left(
    here: Setting,
    tmp_path: Path,
    target: Callable[[Path], Path],
    says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = target(tmp_path)
    before = tree(tmp_path)
    call = autotune_here(
        "export", "s", "--storage", here.url, "--folder", str(folder), capsys=capsys
    )
    (fault,) = call.faults
    assert f"{says}; name another folder with `autotune export --folder`" in fault
    assert tree(tmp_path) == before


def test_one_study_has_a_faster_winner_and_one_keeps_its_baseline(
    here: Setting, record: dict[str, Any]
) -> None:
    assert record["keeps_baseline"] == (not here.base)


def test_export_finds_a_study_by_its_name(here: Setting) -> None:
    home = here.folder.parent.parent
    before = tree(here.folder)
    call = autotune("export", "s", "--json", cwd=home)
    assert call.code == 0
    assert json.loads(call.out) == json.loads(before["record.json"])
    assert tree(here.folder).keys() == before.keys()


def test_every_tokens_per_s_follows_from_the_raw_step_times(
    here: Setting,
    record: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(here.folder.parent.parent)
    table = autotune_here("export", "s", capsys=capsys).out
    assert check_numbers(here.folder, record, table) >= 8


def test_the_record_says_how_its_numbers_came_about(record: dict[str, Any]) -> None:
    assert record["evaluator"] == "measured"
    assert record["tokens_per_s"].keys() == {"value", "low", "high"}
    assert record["baseline"].keys() >= {
        "name",
        "ds_config",
        "tokens_per_s",
        "ratio",
        "ratio_low",
        "ratio_high",
    }
    assert record["memory"]["peak_bytes"] <= record["memory"]["ceiling_bytes"]
    assert record["environment"] == {"autotune": "as if"}
    assert record["workload"]["seq_len"] == 128
    assert record["study"]["name"] == "s"
    assert record["model_settings"].keys() == {"activation_checkpointing", "attn_implementation"}
    assert record["losses"]["tolerance"] == 2e-3
    # A baseline that was confirmed by itself has nothing to compare with.
    assert record["losses"]["compared"] == (not record["keeps_baseline"])
    assert record["not_shown"] == []
    assert record["memory"]["charged_bytes"] == 0


def test_the_exported_config_is_the_one_that_was_confirmed(
    here: Setting, view: StudyView, record: dict[str, Any]
) -> None:
    config = json.loads((here.folder / "ds_config.json").read_text(encoding="utf-8"))
    assert config == exported_ds_config(view)
    assert view.exported is not None
    searched = view.exported.candidate.values
    for key, value in searched.items():
        if not key.startswith("model."):
            section: Any = config
            for part in key.split("."):
                section = section[part]
            assert section == value
    settings = {f"model.{name}": value for name, value in record["model_settings"].items()}
    assert settings.items() >= {k: v for k, v in searched.items() if "model." in k}.items()


def test_a_study_without_a_confirmation_exports_its_trials_only(tmp_path: Path) -> None:
    here = setting(tmp_path / "s")
    view = StudyView.of(here.search(trials=2))
    assert write_study_files(view, here.folder) is None
    assert [path.name for path in here.folder.iterdir()] == ["trials.csv"]
    with pytest.raises(ExportError, match="study s: no trial was confirmed"):
        exported_ds_config(view)


def test_if_nothing_fits_that_is_printed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    here = setting(tmp_path / "studies/s", ceiling_bytes=2**20, on_disk=True)
    here.search(trials=3)
    call = autotune_here("export", "s", capsys=capsys)
    assert call.code == 1
    assert "nothing fits: no trial ran to its end under the ceiling" in " ".join(call.out.split())
    assert "--resume" not in call.out + call.err
    as_json = autotune_here("export", "s", "--json", capsys=capsys)
    assert as_json.code == 1
    assert json.loads(as_json.out) is None


def test_the_record_of_emulated_runs_says_what_they_do_not_show(tmp_path: Path) -> None:
    here = setting(tmp_path / "s", noise=0.001, space=small_space(FEW_POINTS), name="emulated")
    formula = here.evaluator._outcome
    here.evaluator.override = lambda request: replace(formula(request), charged_bytes=123)
    opened = here.open()
    run_study(
        opened,
        here.evaluator,
        here.folder,
        request=tune_request(model="tiny", gpus=2, trials=12, confirm_rounds=2),
        progress=Silent(),
    )
    record = json.loads((here.folder / "record.json").read_text(encoding="utf-8"))
    assert record["evaluator"] == "emulated"
    assert record["not_shown"][0] == "communication time"
    assert len(record["not_shown"]) == 4
    assert record["losses"] == {
        "relative_difference": None,
        "tolerance": 2e-3,
        "compared": False,
    }
    assert record["memory"]["charged_bytes"] == 123
    # What a reader of the dashboard sees.
    attributes = opened.stored.attributes
    assert attributes["evaluator"] == "emulated"
    assert "communication time; the other ranks' share" in attributes["not_shown"]
    rows = (here.folder / "trials.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert all(",emulated," in row for row in rows)
