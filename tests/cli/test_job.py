"""`autotune job`: the resolved job, with the origin of each fact."""

import json
from pathlib import Path

import pytest

from tests.cli.calls import Call, autotune_here


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "ds_config.json").write_text('{"train_micro_batch_size_per_gpu": 4}', "utf-8")
    (tmp_path / "autotune.yaml").write_text("model: 7b\ngpus: 16\nseq_len: 4096\n", "utf-8")


def _job(*arguments: str, capsys: pytest.CaptureFixture[str]) -> Call:
    return autotune_here("job", *arguments, capsys=capsys)


def test_every_fact_is_a_line_with_its_origin(capsys: pytest.CaptureFixture[str]) -> None:
    call = _job("ds_config.json", "--seq-len", "1024", capsys=capsys)
    assert call.code == 0, call.err
    lines = [" ".join(line.split()) for line in call.out.splitlines()]
    for line in (
        "model 7b job file",
        "gpus 16 job file",
        "seq-len 1024 option",
        "micro-batch-size 4 ds_config",
        "precision fp32 DeepSpeed default",
        "optimizer AdamW preset",
        "memory-ceiling 90% preset",
    ):
        assert line in lines
    assert lines[-1] == "not known: --gpu-type"


def test_json_is_one_object_of_facts(capsys: pytest.CaptureFixture[str]) -> None:
    call = _job("--gpu-type", "h100-80gb", "--json", capsys=capsys)
    assert call.code == 0, call.err
    facts = json.loads(call.out)
    assert facts["gpus"] == {"value": 16, "origin": "job file"}
    assert facts["gpu_type"] == {"value": "h100-80gb", "origin": "option"}
    assert facts["precision"] == {"value": "bf16", "origin": "preset"}


def test_a_job_file_can_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.yaml").write_text("gpus: 2", "utf-8")
    call = _job("--job", "other.yaml", "--json", capsys=capsys)
    assert json.loads(call.out)["gpus"]["value"] == 2
    assert "model" not in json.loads(call.out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--job", "nowhere.yaml"), "--job nowhere.yaml: no such file; write one with"),
        (("nowhere.json",), "nowhere.json: no such file"),
        (("--gpus", "0"), "--gpus 0: must be at least 1"),
        (("--model", "nowhere"), "--model nowhere: "),
    ],
)
def test_a_wrong_call_ends_with_2_and_one_message(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (fault,) = _job(*arguments, capsys=capsys).faults
    assert fault.startswith(message)


def test_an_unknown_key_of_the_job_file_names_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("autotune.yaml").write_text("seqlen: 8", "utf-8")
    (fault,) = _job(capsys=capsys).faults
    assert fault == "autotune.yaml: seqlen: not an option of a job; did you mean seq_len?"
