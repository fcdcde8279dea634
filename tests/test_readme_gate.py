"""README's section about the gate holds."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from autotune.report.gate.rules_page import rules_page
from tests.cli.calls import autotune, autotune_here

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SECTION = README[README.index("## Gate\n") : README.index("## Results\n")]


def _block(language: str, number: int = 0) -> str:
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", SECTION, flags=re.DOTALL)
    return blocks[number]


def test_the_example_prints_what_readme_shows(tmp_path: Path) -> None:
    command, _, shown = _block("text").partition("\n")
    (tmp_path / "ds_config.json").write_text(_block("json"), encoding="utf-8")
    _, program, *arguments = shlex.split(command)
    assert program == "autotune"
    call = autotune(*arguments, cwd=tmp_path)
    assert call.out == shown
    assert call.code == 1


def test_the_workflows_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workflow = yaml.safe_load(_block("yaml"))
    *_, step = workflow["jobs"]["gate"]["steps"]
    program, *arguments = shlex.split(step["run"])
    assert program == "autotune"
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "ds_config.json").write_text(_block("json"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    call = autotune_here(*arguments, capsys=capsys)
    assert call.code == 1
    assert "::error file=configs/ds_config.json,line=4,col=3,title=unknown-key" in call.out


def test_the_hook_that_readme_names_is_there() -> None:
    (repo,) = yaml.safe_load(_block("yaml", 1))["repos"]
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert [hook["id"] for hook in repo["hooks"]] == [hook["id"] for hook in hooks]


def test_the_list_of_rules_is_that_of_the_rules() -> None:
    page = (ROOT / "autotune" / "lint" / "rules" / "README.md").read_text(encoding="utf-8")
    assert page == rules_page(), "not up to date: see autotune/report/gate/rules_page.py"


def test_every_option_that_readme_names_exists(capsys: pytest.CaptureFixture[str]) -> None:
    named = set(re.findall(r"`(--[a-z-]+)", SECTION))
    assert len(named) > 10
    helped = autotune_here("gate", "--help", capsys=capsys).out
    assert [option for option in sorted(named) if option not in helped] == []
