"""`autotune.yaml`: found, read, and refused with what is wrong."""

from pathlib import Path

import pytest

from autotune.errors import JobError
from autotune.job.job import Job
from autotune.job.job_file import find_job_file, read_job_file
from autotune.job.launcher import Launcher


def _file(folder: Path, text: str) -> Path:
    path = folder / "autotune.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_keys_are_the_options_names_with_either_spelling(tmp_path: Path) -> None:
    text = """
gpus: 8
seq-len: 4096
params: 6.7e9
gpu_memory: 80
memory-ceiling: 90%
activation_checkpointing: true
launcher: hf
nodes:
"""
    assert read_job_file(_file(tmp_path, text)) == Job(
        gpus=8,
        seq_len=4_096,
        params=6.7e9,
        gpu_memory="80",
        memory_ceiling="90%",
        activation_checkpointing=True,
        launcher=Launcher.HF,
    )


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    text = "model: model\nprobe: p.json\ndevices: d.yaml\nhf_args: sub/a.json\n"
    job = read_job_file(_file(tmp_path, text))
    assert job.model == str(tmp_path / "model")
    assert (job.probe, job.devices) == (tmp_path / "p.json", tmp_path / "d.yaml")
    assert job.hf_args == tmp_path / "sub" / "a.json"


def test_a_preset_is_no_path(tmp_path: Path) -> None:
    assert read_job_file(_file(tmp_path, "model: 7b")).model == "7b"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpuss: 8", r"autotune.yaml: gpuss: not an option of a job; did you mean gpus"),
        ("seq-length: 8", r"seq-length: not an option of a job; did you mean seq_len\?"),
        ("zzz: 8", r"zzz: not an option of a job; known keys: model, params"),
        ("gpus: 8.5", r"gpus=8.5: must be a whole number"),
        ("gpus: true", r"gpus=True: must be a whole number"),
        ("gpus: '8'", r"gpus='8': must be a whole number"),
        ("params: many", r"params='many': must be a number"),
        ("activation_checkpointing: 1", r"activation_checkpointing=1: must be true or false"),
        ("launcher: slurm", r"launcher='slurm': must be deepspeed or hf"),
        ("model: 7", r"model=7: must be a text"),
        ("memory_ceiling: true", r"memory_ceiling=True: must be a text"),
        ("gpus: 0", r"autotune.yaml: --gpus 0: must be at least 1"),
        ("- gpus", r"must map option names to values"),
        ("gpus: [", r"not readable as YAML"),
        ("model: 7b\nparams: 1e9", r"--model names the model already; leave one of the two out"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(JobError, match=message) as raised:
        read_job_file(_file(tmp_path, text))
    assert raised.value.exit_code == 2
    assert len(raised.value.faults) == 1


def test_every_fault_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="gpuss") as raised:
        read_job_file(_file(tmp_path, "gpuss: 8\nseq_len: long\nlauncher: 3"))
    assert len(raised.value.faults) == 3


def test_a_file_is_found_in_the_folder_or_named(tmp_path: Path) -> None:
    assert find_job_file(None, folder=tmp_path) is None
    path = _file(tmp_path, "gpus: 8")
    assert find_job_file(None, folder=tmp_path) == path
    assert find_job_file(path) == find_job_file(tmp_path) == path


def test_a_named_file_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"--job .*other.yaml: no such file; write one with"):
        find_job_file(tmp_path / "other.yaml")
    with pytest.raises(JobError, match=r"--job .*: no such file"):
        find_job_file(tmp_path)
