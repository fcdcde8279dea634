"""`autotune gate`, as a CI job calls it."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.calls import Call, autotune, autotune_here
from tests.gating.records import write, written_study

ROOT = Path(__file__).parents[2]
CLEAN = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}}
MISSPELT = '{\n  "train_micro_batch_size_per_gpu": 1,\n  "zero_optimization": {"stge": 2}\n}\n'
JOB = ["--model", "tiny", "--gpus", "8", "--gpu-type", "l4", "--seq-len", "128"]
"""Enough to judge memory: it fits."""
WARNED = '{"train_micro_batch_size_per_gpu": 1, // one\n "bf16": {"enabled": true}}\n'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clean.json").write_text(json.dumps(CLEAN), encoding="utf-8")
    (tmp_path / "misspelt.json").write_text(MISSPELT, encoding="utf-8")
    (tmp_path / "warned.json").write_text(WARNED, encoding="utf-8")
    return tmp_path


class _Gate:
    """Calls the command in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Call:
        return autotune_here("gate", *arguments, capsys=self._capsys)


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> _Gate:
    return _Gate(capsys)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["clean.json"], 0),
        (["clean.json", "--strict", *JOB], 0),
        # Memory that is not judged fails a strict gate.
        (["clean.json", "--strict"], 1),
        (["warned.json"], 0),
        (["warned.json", "--strict", *JOB], 1),
        (["warned.json", "--strict", "--ignore", "hjson-only", *JOB], 0),
        (["warned.json", "--launcher", "hf"], 1),
        (["misspelt.json"], 1),
        (["misspelt.json", "--ignore", "unknown-key"], 0),
        (["clean.json", "misspelt.json"], 1),
        (["clean.json", "warned.json"], 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_the_exit_code_says_whether_the_run_may_start(
    home: Path, call: _Gate, arguments: list[str], code: int
) -> None:
    ended = call(*arguments)
    assert ended.code == code, ended
    assert ended.out
    assert ended.err == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing to gate: give a DS_CONFIG, or - for standard input"),
        (["no.json"], "no.json: no such file"),
        (["."], ".: not readable: Is a directory"),
        (["clean.json", "--ignore", "nosuch"], "--ignore nosuch: no such rule; autotune gate"),
        (["--explain", "unknown-kye"], "--explain unknown-kye: no such rule; did you mean unknown"),
        (
            ["clean.json", "--write-accepted"],
            "--write-accepted: name the file with --accepted FILE",
        ),
        (["clean.json", "--fix-output", "x"], "--fix-output x: needs --fix; add it"),
        (["-", "--fix"], "--fix: standard input cannot be written to; add --fix-output FILE"),
        (["-", "-"], "-: standard input can be read only once"),
        (["clean.json", "warned.json", "--fix", "--fix-output", "x"], "--fix-output x: holds one"),
        (["clean.json", "--max-age", "30"], "--max-age 30: not an age; write 12h, 30d or 8w"),
        (["clean.json", "--max-regression", "x"], "--max-regression x: not a share; write 5%"),
        (["clean.json", "--measure"], "--measure: needs a record to compare with"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_call_ends_with_2_and_one_message(
    home: Path, call: _Gate, arguments: list[str], message: str
) -> None:
    (fault,) = call(*arguments).faults
    assert fault.startswith(message)


def test_json_is_printed_even_when_nothing_can_be_read(home: Path, call: _Gate) -> None:
    (home / "broken.json").write_text('{"train_batch_size": 8,', encoding="utf-8")
    ended = call("broken.json", "--format", "json")
    assert ended.code == 1
    printed = json.loads(ended.out)
    assert printed["verdict"] == "error"
    assert printed["memory"] is None
    assert printed["memory_reason"] == "the config cannot be read"


def test_standard_input_is_a_config(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "autotune.cli.main", "gate", "-", "--format", "json"],
        input=MISSPELT,
        capture_output=True,
        text=True,
        cwd=home,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["findings"][0]["line"] == 3


@pytest.mark.parametrize("form", ["json", "junit", "github", "sarif"])
def test_nothing_but_the_form_is_on_standard_output(home: Path, call: _Gate, form: str) -> None:
    ended = call("misspelt.json", "--format", form, "--diff")
    assert ended.code == 1
    starts = {"json": "{", "junit": "<?xml", "github": "::error ", "sarif": "{"}
    assert ended.out.startswith(starts[form])
    assert "+++ misspelt.json (fixed)" in ended.err


def test_a_rule_is_explained_without_a_config(call: _Gate) -> None:
    ended = call("--explain", "unknown-key")
    assert ended.code == 0
    assert ended.out.startswith("unknown-key (error)\n")


def test_fix_writes_the_file_and_judges_what_it_wrote(home: Path, call: _Gate) -> None:
    shown = call("misspelt.json", "--diff")
    assert shown.code == 1
    assert (home / "misspelt.json").read_text(encoding="utf-8") == MISSPELT
    fixed = call("misspelt.json", "--fix")
    assert fixed.code == 0, fixed
    assert '+  "zero_optimization": {"stage": 2}' in fixed.out
    expected = MISSPELT.replace("stge", "stage")
    assert (home / "misspelt.json").read_text(encoding="utf-8") == expected
    again = call("misspelt.json", "--fix")
    assert "@@" not in again.out
    assert (home / "misspelt.json").read_text(encoding="utf-8") == expected


def test_fix_can_write_elsewhere(home: Path, call: _Gate) -> None:
    assert call("misspelt.json", "--fix", "--fix-output", "fixed.json").code == 0
    assert (home / "misspelt.json").read_text(encoding="utf-8") == MISSPELT
    assert call("fixed.json").code == 0


def test_findings_are_accepted_into_a_file_and_stay_accepted(home: Path, call: _Gate) -> None:
    accept = ["misspelt.json", "--accepted", "accepted.yaml"]
    assert call(*accept).faults[0].endswith("no such file; --write-accepted writes one")
    written = call(*accept, "--write-accepted")
    assert written.code == 0
    assert "accepted.yaml: 1 findings added" in written.err
    later = call(*accept, *JOB, "--strict", "--format", "json")
    assert later.code == 0
    printed = json.loads(later.out)
    assert [finding["rule"] for finding in printed["accepted"]] == ["unknown-key"]
    assert call("misspelt.json").code == 1


def test_a_file_of_accepted_findings_may_be_of_several_configs(home: Path, call: _Gate) -> None:
    options = ["--accepted", "accepted.yaml", "--format", "json"]
    assert call("misspelt.json", *options, "--write-accepted").code == 0
    assert len(json.loads(call("clean.json", *options).out)["findings"]) == 1
    both = json.loads(call("clean.json", "misspelt.json", *options).out)
    assert both["verdict"] == "ok"
    assert [result["findings"] for result in both["results"]] == [[], []]


def test_nothing_heavy_is_imported(home: Path) -> None:
    options = ["--model", "7b", "--gpus", "8", "--gpu-type", "a100-80gb", "--host-memory", "500"]
    code = (
        "import sys; from autotune.cli.main import app\n"
        f"app(['gate', 'clean.json', *{options}], standalone_mode=False)\n"
        "print([m for m in ('torch', 'deepspeed', 'ray', 'pandas', 'transformers', 'optuna', "
        "'numpy', 'scipy', 'psutil') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=home, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


BLOCKED = """
    torch deepspeed ray optuna transformers pandas numpy scipy psutil pynvml accelerate plotly
"""
WITHOUT = f"""
import sys
for name in {BLOCKED.split()}:
    sys.modules[name] = None
from autotune.cli.main import main
sys.argv[0] = "autotune"
main()
"""


@pytest.mark.parametrize("form", ["text", "json", "junit", "github", "sarif"])
def test_four_packages_suffice(home: Path, form: str) -> None:
    """What README's workflow installs: typer, rich, pyyaml and hjson, and what they bring."""
    (home / "accepted.yaml").write_text("[]", encoding="utf-8")
    options = ["--model", "7b", "--gpus", "8", "--gpu-type", "l4", "--accepted", "accepted.yaml"]
    done = _without_torch("misspelt.json", *options, "--format", form, cwd=home)
    assert done.returncode == 1, done.stderr
    assert "unknown-key" in done.stdout
    assert done.stderr == ""


def test_a_record_is_compared_without_torch_and_measuring_says_what_it_needs(home: Path) -> None:
    record = write(home / "record.json", written_study(home / "s"))
    options = ["s/ds_config.json", "--baseline", str(record)]
    done = _without_torch(*options, cwd=home)
    assert done.returncode == 0, done.stdout + done.stderr
    done = _without_torch(*options, "--measure", cwd=home)
    assert done.returncode == 2
    assert "error: --measure: needs ray, torch, deepspeed, transformers" in done.stderr


def _without_torch(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, "gate", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )


def _hook() -> dict[str, Any]:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    loaded: dict[str, Any] = hook
    return loaded


def test_the_pre_commit_hook_gates_every_file_it_is_given(home: Path) -> None:
    command, *arguments = shlex.split(_hook()["entry"])
    assert command == "autotune"
    ended = autotune(*arguments, *_hook().get("args", []), "clean.json", "warned.json", cwd=home)
    assert ended.code == 0, ended
    assert ended.out.count(": ok (") + ended.out.count(": warning (") == 2
    assert autotune(*arguments, "clean.json", "misspelt.json", cwd=home).code == 1


def test_pre_commit_takes_the_hook(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pre_commit", "validate-manifest", ROOT / ".pre-commit-hooks.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_pre_commit_runs_the_hook(home: Path) -> None:
    """A commit with a faulty config is stopped, one without goes through."""
    hooks = home / "hooks"
    hooks.mkdir()
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", hooks)
    _git(hooks, "init", "-q")
    _git(hooks, "add", ".")
    _git(hooks, "commit", "-q", "-m", "hooks")
    _git(home, "init", "-q")
    for name, code in (("ds_clean.json", 0), ("ds_misspelt.json", 1)):
        (home / name).write_bytes((home / name.removeprefix("ds_")).read_bytes())
        _git(home, "add", name)
        command = [sys.executable, "-m", "pre_commit", "try-repo", str(hooks), "autotune-gate"]
        done = subprocess.run(
            [*command, "--files", name, "warned.json"],
            capture_output=True,
            text=True,
            cwd=home,
            env=_with_autotune(home),
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        # warned.json has no name of a ds_config, so it is not asked about.
        assert "warned.json" not in done.stdout
    assert "zero_optimization.stge: no such key" in done.stdout


def _git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def _with_autotune(home: Path) -> dict[str, str]:
    """Return an environment whose `autotune` is the one under test, with caches of the test's."""
    script = Path(sys.executable).parent
    paths = {"PATH": f"{script}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    return os.environ | paths | {"PRE_COMMIT_HOME": str(home / "cache")}


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        ("ds_config.json", True),
        ("configs/ds_config_zero3.json", True),
        ("deepspeed/zero2.json", True),
        ("conf/deepspeed_config.yaml", True),
        ("train/accelerate_deepspeed.yaml", True),
        ("package.json", False),
        ("README.md", False),
        ("configs/model.yaml", False),
    ],
)
def test_the_hook_takes_files_by_the_names_people_give_them(path: str, taken: bool) -> None:
    assert bool(re.search(_hook()["files"], path)) is taken
