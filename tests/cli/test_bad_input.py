"""Whatever a user gets wrong: clear messages, exit code 2, nothing written, and soon."""

import json
import re
import time
from pathlib import Path
from typing import Any

import optuna
import pytest

from tests.cli.calls import ON_CPU, autotune, autotune_here, tree

FILES: dict[str, Any] = {
    "lacking/config.json": {"model_type": "llama", "vocab_size": 0},
    "odd/config.json": {
        "model_type": "no_such_model",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 100,
    },
    "text.json": "not a mapping",
    "broken.json": '{"zero_optimization": {\n  "stage": 2,\n  "overlap_comm": [true\n}}',
    "twice.json": '{"zero_optimization": {"stage": 1, "stage": 2}}',
    "stage7.json": {"zero_optimization": {"stage": 7}},
    "switch.json": {"bf16": True},
    "batch.json": {
        "train_batch_size": 64,
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
    },
    "accumulation.json": {"train_batch_size": 16, "gradient_accumulation_steps": 3},
    "words.json": {"train_batch_size": "many", "optimizer": "Adam", "gradient_clipping": "no"},
    "space.yaml": """
parameters:
  zero_optimization.reduce_bucket_size: {low: 2000, high: 1000}
  zero_optimization.stge: {choices: [1]}
""",
}

# Options (which override those of `ON_CPU`), and a pattern for each message.
FAULTS: dict[str, tuple[list[str], list[str]]] = {
    "unknown model": (
        ["--model", "8b"],
        ["--model 8b: neither a preset nor .*presets: tiny, 125m"],
    ),
    "no such file": (["--model", "no/config.json"], ["--model no/config.json: neither"]),
    "folder without config.json": (
        ["--model", "empty"],
        ["--model empty: a folder without a config.json; .*preset: tiny"],
    ),
    "config.json lacking fields": (
        ["--model", "lacking"],
        [
            "lacking/config.json: hidden_size is missing .*n_embd",
            "lacking/config.json: num_hidden_layers is missing",
            "lacking/config.json: num_attention_heads is missing",
            "lacking/config.json: vocab_size=0 is not a positive whole number",
        ],
    ),
    "config.json that is not a mapping": (
        ["--model", "text.json"],
        ["holds a str, not a model config"],
    ),
    "config.json that is not json": (
        ["--model", "broken.json"],
        ["broken.json: not readable as JSON: .*line 4 column 1"],
    ),
    "model that transformers lacks": (
        ["--model", "odd"],
        ["model_type 'no_such_model': transformers [0-9.]+ has no such model"],
    ),
    "no such base": (["--base", "nowhere.json"], ["nowhere.json: no such file"]),
    "base that is a folder": (["--base", "empty"], ["empty: not readable: .*directory"]),
    "base that is broken": (
        ["--base", "broken.json"],
        ["broken.json: line 3, column 19: .*a missing closing bracket"],
    ),
    "base with a key twice": (
        ["--base", "twice.json"],
        ["twice.json: line 1, column 36: zero_optimization.stage is given twice"],
    ),
    "base that is not a mapping": (
        ["--base", "text.json"],
        ["text.json: not a config: the file contains a string, not a mapping"],
    ),
    "base of an unknown stage": (
        ["--base", "stage7.json"],
        [r"stage7.json: zero_optimization.stage=7: must be one of 0, 1, 2, 3.* \[limit\]"],
    ),
    "base with a switch for a section": (
        ["--base", "switch.json"],
        ["switch.json: bf16=true: must be a section, not a boolean; write .*true"],
    ),
    "base whose batch sizes do not multiply": (
        ["--base", "batch.json"],
        [
            "--base: train_batch_size=64 is not train_micro_batch_size_per_gpu x "
            "gradient_accumulation_steps x ranks: 4 x 2 x 2 ranks; .*--global-batch-size"
        ],
    ),
    "base whose batch does not divide": (
        ["--base", "accumulation.json"],
        ["train_batch_size=16 is not .*: any x 3 x 2 ranks"],
    ),
    "base with values of the wrong type": (
        ["--base", "words.json"],
        [
            "--base: train_batch_size='many': must be a whole number",
            "--base: optimizer='Adam': must be a section with a type",
            "--base: gradient_clipping='no': must be a number",
        ],
    ),
    "global batch that does not divide": (
        ["--global-batch-size", "15"],
        ["global_batch_size=15: not divisible by 2 ranks; nearest: 14 or 16"],
    ),
    "unknown evaluator": (
        ["--evaluator", "guessed"],
        ["--evaluator guessed: must be auto, measured, emulated or modelled"],
    ),
    "modelled ranks of no known kind": (
        ["--evaluator", "modelled", "--device", "auto"],
        ["--evaluator modelled: nothing runs, .* name one with --gpu-type, such as h100-80gb"],
    ),
    "modelled ranks of an unknown kind": (
        ["--evaluator", "modelled", "--device", "auto", "--gpu-type", "h10"],
        ["--gpu-type h10: unknown device; did you mean h100-80gb.*known: .*h100-80gb"],
    ),
    "modelled CPU ranks": (
        ["--evaluator", "modelled", "--device", "auto", "--gpu-type", "cpu"],
        ["--gpu-type cpu: the models know GPUs; name one"],
    ),
    "more modelled ranks than the models predict": (
        ["--evaluator", "modelled", "--device", "auto", "--gpu-type", "h200", "--gpus", "5000"],
        ["--gpus 5000: the models predict at most 4096"],
    ),
    "modelled ranks that something should run on": (
        ["--evaluator", "modelled", "--gpu-type", "h200", "--untimed", "--ray-address", "auto"],
        [
            "--device cpu: the speed model knows GPUs, and nothing runs with --evaluator modelled",
            "--ray-address auto: nothing runs with --evaluator modelled, so leave it out",
            "--untimed: nothing runs with --evaluator modelled, so leave it out",
        ],
    ),
    "a kind of GPU for trials that run": (
        ["--gpu-type", "h200"],
        ["--gpu-type h200: is for --evaluator modelled; .*leave it out"],
    ),
    "devices for trials that run": (
        ["--devices", "devices.yaml"],
        ["--devices devices.yaml: is for --evaluator modelled; .*leave it out"],
    ),
    "a target that is not larger": (
        ["--device", "auto", "--target-gpus", "2"],
        ["--target-gpus 2: must be more than --gpus 2 and at most 4096"],
    ),
    "a target of CPU ranks": (
        ["--target-gpus", "4"],
        ["--target-gpus 4: the speed model knows GPUs, not CPU ranks"],
    ),
    "a target that cannot share the batch": (
        [
            "--device",
            "auto",
            "--target-gpus",
            "6",
            "--global-batch-size",
            "16",
            "--gpu-type",
            "h200",
            "--evaluator",
            "modelled",
        ],
        ["--target-gpus 6: global_batch_size=16: not divisible by 6 ranks"],
    ),
    "nodes that do not divide the ranks": (
        ["--evaluator", "emulated", "--gpus", "8", "--gpus-per-node", "3"],
        ["--gpus-per-node 3: does not divide 8 GPUs; use a divisor of --gpus"],
    ),
    "nodes of real ranks": (
        ["--evaluator", "measured", "--gpus-per-node", "2"],
        ["--gpus-per-node 2: is for emulated ranks; .*leave it out, or use --evaluator emulated"],
    ),
    "ceiling of nothing": (["--memory-ceiling", "0%"], ["--memory-ceiling 0%: must be more than"]),
    "ceiling above the share": (
        ["--memory-ceiling", "150%"],
        ["--memory-ceiling 150%: is above the whole device; use 100% or less"],
    ),
    "ceiling without a unit": (["--memory-ceiling", "72"], [r"--memory-ceiling 72: GB \(.*or GiB"]),
    "ceiling below nothing": (
        ["--memory-ceiling=-1GiB"],
        ["--memory-ceiling -1GiB: must be more than zero"],
    ),
    "ceiling above the machine": (
        ["--memory-ceiling", "90TiB"],
        ["--memory-ceiling 90TiB: 92160.00 GiB is above the device's"],
    ),
    "ceiling in words": (["--memory-ceiling", "most"], ["--memory-ceiling 'most': not a size"]),
    "space with several faults": (
        ["--space", "space.yaml"],
        [
            "space.yaml: zero_optimization.reduce_bucket_size: low=2000 exceeds high=1000; swap",
            "space.yaml: zero_optimization.stge: unknown key; did you mean .*stage",
        ],
    ),
    "unknown space": (["--space", "zeero"], ["search space 'zeero': neither .*known: .*zero"]),
    "no such space file": (["--space", "no.yaml"], ["no.yaml: not readable: No such file"]),
    "resume of a missing study": (
        ["--resume", "--study", "nosuch"],
        ["--resume: there is no study studies/nosuch; leave --resume out"],
    ),
    "resume of nothing": (["--resume"], ["--resume: name the study with --study NAME"]),
    "study that exists": (
        ["--study", "old"],
        ["--study old: studies/old exists; continue with --resume, or choose another name"],
    ),
    "study with a slash": (["--study", "a/b"], ["--study 'a/b': .*without slashes"]),
    "study without a name": (["--study", ""], ["--study '': must be a folder's name"]),
    "storage that is not a url": (
        ["--storage", "nonsense"],
        ["--storage nonsense: cannot be opened"],
    ),
    "storage without a driver": (
        ["--storage", "mysql://me:secret@localhost/x"],
        [r"--storage mysql://me:\*\*\*@localhost/x: its driver is not installed \(.*MySQLdb"],
    ),
    "storage in no folder": (
        ["--storage", "sqlite:///no/such/study.db"],
        ["--storage sqlite:///no/such/study.db: cannot be opened: there is no folder no/such"],
    ),
    "storage that is not a database": (
        ["--storage", "sqlite:///broken.json"],
        ["--storage sqlite:///broken.json: cannot be opened: .*not a database"],
    ),
    "too many ranks for the cpu": (
        ["--gpus", "64"],
        [
            "--gpus 64: this machine has [0-9]+ CPU slots; .*choices: --gpus [0-9]+; "
            "--evaluator emulated, where one of them emulates one rank of 64; --ray-address"
        ],
    ),
    "no cuda": (
        ["--device", "auto"],
        [
            "--gpus 2: this machine has 0 CUDA devices; .*choices: --device cpu with --gpus 2 or "
            "less.*; --ray-address"
        ],
    ),
    "no cuda, and a share above all": (
        ["--device", "cuda", "--memory-ceiling", "150%"],
        ["--memory-ceiling 150%: is above the whole device; use 100% or less"],
    ),
    "unknown device": (["--device", "tpu"], ["--device tpu: must be auto, cuda or cpu"]),
    "time budget without a unit": (
        ["--time-budget", "45"],
        ["--time-budget 45: must be a positive number with a unit: 90s, 45m or 2h"],
    ),
    "ray cluster that does not answer": (
        ["--ray-address", "127.0.0.1:1"],
        ["--ray-address 127.0.0.1:1: nothing answers there .*refused.*leave the option out"],
    ),
    "unknown precision": (
        ["--precision", "int8"],
        ["--precision int8: must be one of bf16, fp16, fp32"],
    ),
    "more tokens than positions": (
        ["--model", "gpt2", "--seq-len", "4096"],
        ["seq_len=4096: gpt2 has 1024 learned positions; use --seq-len 1024 or less"],
    ),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        as_is = name == "text.json" or not isinstance(content, str)
        path.write_text(json.dumps(content) if as_is else content, encoding="utf-8")
    (folder / "empty").mkdir()
    (folder / "studies" / "old").mkdir(parents=True)
    (folder / "studies" / "old" / "precious.txt").write_text("mine", encoding="utf-8")
    return folder


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_call_is_reported_and_writes_nothing(
    fault: str,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(home)
    options, messages = FAULTS[fault]
    before = tree(home)
    began = time.monotonic()
    faults = autotune_here(*ON_CPU, *options, capsys=capsys).faults
    took_s = time.monotonic() - began
    assert len(faults) == len(messages), faults
    for text, message in zip(faults, messages, strict=True):
        assert re.search(message, text), text
        assert "secret" not in text
    assert tree(home) == before
    # Generous, for a busy machine: Ray alone would take longer.
    assert took_s < 10


def test_a_wrong_call_of_the_real_command_has_no_traceback(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(home)
    call = autotune(*ON_CPU, "--model", "8b", cwd=home)
    assert call.faults == autotune_here(*ON_CPU, "--model", "8b", capsys=capsys).faults
    assert len(call.faults) == 1


def test_a_folder_that_cannot_be_created_is_reported_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "studies").write_text("a file", encoding="utf-8")
    (fault,) = autotune_here(*ON_CPU, "--study", "x", capsys=capsys).faults
    assert re.search("studies/x: cannot be created: .*studies is not a folder", fault)


@pytest.mark.parametrize("command", ["export", "dashboard"])
def test_a_command_for_a_missing_study_says_where_it_looked(
    command: str,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(home)
    (fault,) = autotune_here(command, "nosuch", capsys=capsys).faults
    assert fault == "study nosuch: no studies/nosuch/study.db; name its storage with --storage"
    (fault,) = autotune_here(
        command, "nosuch", "--storage", "sqlite:///other.db", capsys=capsys
    ).faults
    assert fault == "--study nosuch: no such study: there is no file other.db"
    assert not (home / "other.db").exists()


@pytest.mark.parametrize("command", ["export", "replay"])
def test_a_study_of_another_program_is_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    folder = tmp_path / "studies" / "theirs"
    folder.mkdir(parents=True)
    optuna.create_study(study_name="theirs", storage=f"sqlite:///{folder / 'study.db'}")
    monkeypatch.chdir(tmp_path)
    (fault,) = autotune_here(command, "theirs", capsys=capsys).faults
    assert "study theirs: not a study of autotune" in fault


def test_a_host_that_is_none_of_this_machine_s_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "studies" / "mine"
    folder.mkdir(parents=True)
    optuna.create_study(study_name="mine", storage=f"sqlite:///{folder / 'study.db'}")
    monkeypatch.chdir(tmp_path)
    asked = ("dashboard", "mine", "--host", "192.0.2.1", "--port", "18078")
    (fault,) = autotune_here(*asked, capsys=capsys).err.splitlines()[-1:]
    assert fault.startswith("error: --host 192.0.2.1: ")
