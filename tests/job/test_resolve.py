"""One job from all sources: the first that states a fact counts, and every fact has an origin."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotune.errors import JobError
from autotune.job.base import read_base
from autotune.job.job import Job
from autotune.job.launcher import Launcher
from autotune.job.model_shape import load_model_shape
from autotune.job.origin import Origin
from autotune.job.resolve import RecordedJob, ResolvedJob, launcher_of, resolve_job
from autotune.lint.subject import Launch, Subject

SOURCES = (Origin.OPTION, Origin.JOB_FILE, Origin.DS_CONFIG, Origin.HF_ARGS, Origin.RECORD)
LENGTHS = dict(zip(SOURCES, (1_000, 2_000, 3_000, 4_000, 5_000), strict=True))
PAIRS = [(first, second) for i, first in enumerate(SOURCES) for second in (*SOURCES[i + 1 :], None)]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _written(name: str, content: Any) -> Path:
    path = Path(name)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def _with_length_from(sources: set[Origin]) -> ResolvedJob:
    """Resolve a job whose sequence length each of some sources gives, each another one."""
    if Origin.JOB_FILE in sources:
        _written("autotune.yaml", {"seq_len": LENGTHS[Origin.JOB_FILE]})
    hf_args = None
    if Origin.HF_ARGS in sources:
        hf_args = _written("args.json", {"max_length": LENGTHS[Origin.HF_ARGS]})
    launch = Launch(seq_len=LENGTHS[Origin.DS_CONFIG] if Origin.DS_CONFIG in sources else None)
    option = LENGTHS[Origin.OPTION] if Origin.OPTION in sources else None
    record = None
    if Origin.RECORD in sources:
        recorded = Job(seq_len=LENGTHS[Origin.RECORD])
        record = RecordedJob(job=recorded, shape=load_model_shape("7b"))
    described = Job(model="7b", seq_len=option, hf_args=hf_args)
    return resolve_job(described, subject=Subject(config={}, launch=launch), record=record)


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_of_two_sources_the_first_counts(first: Origin, second: Origin | None) -> None:
    resolved = _with_length_from({first} | ({second} if second else set()))
    fact = resolved.facts["seq_len"]
    assert (fact.value, fact.origin) == (LENGTHS[first], first)
    assert resolved.seq_len == LENGTHS[first]
    assert not resolved.is_open("seq_len")


def test_without_a_source_the_preset_is_taken_and_reported() -> None:
    resolved = _with_length_from(set())
    assert resolved.seq_len == 2_048
    assert resolved.facts["seq_len"].origin is Origin.PRESET
    assert resolved.is_open("seq_len")
    assert resolved.assumed[0] == "sequence length 2048 (preset; --seq-len not given)"


def test_every_source_may_give_a_part() -> None:
    _written("autotune.yaml", {"gpu_type": "h100-80gb", "gpus": 4})
    arguments = _written("args.json", {"gradient_checkpointing": True, "bf16": True})
    described = Job(model="7b", seq_len=512, hf_args=arguments)
    config = {"train_micro_batch_size_per_gpu": 3, "optimizer": {"type": "Lion"}}
    resolved = resolve_job(described, subject=Subject(config=config))
    origins = {name: fact.origin for name, fact in resolved.facts.items()}
    assert origins["seq_len"] is Origin.OPTION
    assert origins["gpus"] is origins["gpu_type"] is Origin.JOB_FILE
    assert origins["micro_batch_size"] is origins["optimizer"] is Origin.DS_CONFIG
    assert origins["activation_checkpointing"] is origins["precision"] is Origin.HF_ARGS
    assert origins["memory_ceiling"] is Origin.PRESET
    assert resolved.assumed == ()
    printed = resolved.to_json()
    assert printed["gpus"] == {"value": 4, "origin": "job file"}
    assert json.loads(json.dumps(printed)) == printed


ACCELERATE = {
    "compute_environment": "LOCAL_MACHINE",
    "distributed_type": "DEEPSPEED",
    "mixed_precision": "bf16",
    "num_machines": 2,
    "num_processes": 16,
    "deepspeed_config": {"zero_stage": 3, "gradient_accumulation_steps": 4},
}


def test_an_accelerate_yaml_states_the_launch() -> None:
    base = Path("accelerate.yaml")
    base.write_text(yaml.safe_dump(ACCELERATE), encoding="utf-8")
    resolved = resolve_job(Job(model="7b"), subject=read_base(base))
    assert (resolved.site.gpus, resolved.site.ranks_per_node) == (16, 8)
    assert resolved.facts["gpus"].origin is Origin.DS_CONFIG
    assert resolved.subject.launch.launcher is Launcher.HF
    assert resolved.subject.zero_stage == 3
    assert (resolved.precision, resolved.facts["precision"].origin) == ("bf16", Origin.DS_CONFIG)
    # An option, and a job file, come before it.
    assert resolve_job(Job(gpus=4, nodes=1), subject=read_base(base)).site.gpus == 4
    _written("autotune.yaml", {"gpus": 32, "nodes": 4})
    filed = resolve_job(Job(), subject=read_base(base))
    assert (filed.site.gpus, filed.facts["gpus"].origin) == (32, Origin.JOB_FILE)


def test_a_neox_yaml_states_how_the_model_is_split() -> None:
    base = Path("neox.yml")
    neox = {"pipe-parallel-size": 2, "model-parallel-size": 2, "num-layers": 6, "hidden-size": 256}
    keys = {"train_micro_batch_size_per_gpu": 4, "fp16": {"enabled": True}}
    base.write_text(yaml.safe_dump(neox | keys), encoding="utf-8")
    resolved = resolve_job(Job(model="7b", gpus=16), subject=read_base(base))
    launch = resolved.subject.launch
    assert (launch.pipeline_stages, launch.tensor_parallel, launch.data_parallel) == (2, 2, 4)
    assert resolved.facts["pipeline_stages"].origin is Origin.DS_CONFIG
    assert resolved.precision == "fp16"
    split = resolve_job(Job(model="7b", gpus=16, tensor_parallel=1), subject=read_base(base))
    assert split.subject.launch.tensor_parallel == 1


@pytest.mark.parametrize(
    ("described", "filed", "kept"),
    [
        (Job(params=1e9), {"model": "7b"}, "params"),
        (Job(model="7b"), {"params": 1e9}, "model"),
        (Job(nodes=2, gpus=8), {"gpus_per_node": 2}, "nodes"),
        (Job(gpus_per_node=2, gpus=8), {"nodes": 2}, "gpus_per_node"),
    ],
)
def test_of_rivals_the_first_source_s_is_kept(
    described: Job, filed: dict[str, Any], kept: str
) -> None:
    _written("autotune.yaml", filed)
    resolved = resolve_job(described)
    assert resolved.facts[kept].origin is Origin.OPTION
    assert not set(filed) & set(resolved.facts)


def test_of_a_record_the_shape_is_taken_where_no_model_is_named() -> None:
    record = RecordedJob(job=Job(gpus=4), shape=load_model_shape("13b"), micro_batch_size=6)
    resolved = resolve_job(Job(), record=record)
    assert resolved.shape == record.shape
    assert resolved.batch is not None
    assert (resolved.batch.micro, resolved.batch.origin) == (6, Origin.RECORD)
    assert resolve_job(Job(model="7b"), record=record).shape == load_model_shape("7b")


@pytest.mark.parametrize(
    ("config", "options", "precision", "origin"),
    [
        ({}, {}, "bf16", Origin.PRESET),
        ({}, {"gpu_type": "v100-32gb"}, "fp16", Origin.PRESET),
        ({"zero_optimization": {"stage": 2}}, {}, "fp32", Origin.DEEPSPEED),
        ({"zero_optimization": {"stage": 2}}, {"launcher": Launcher.HF}, "bf16", Origin.PRESET),
        ({"bf16": {"enabled": False}}, {}, "fp32", Origin.DS_CONFIG),
        ({"fp16": {"enabled": True}}, {}, "fp16", Origin.DS_CONFIG),
        ({"fp16": {"enabled": True}}, {"precision": "fp32"}, "fp32", Origin.OPTION),
        ({"bf16": {"enabled": "auto"}}, {"launcher": Launcher.HF}, "bf16", Origin.PRESET),
    ],
)
def test_precision_and_its_origin(
    config: dict[str, Any], options: dict[str, Any], precision: str, origin: Origin
) -> None:
    resolved = resolve_job(Job(**options), subject=Subject(config=config))
    assert (resolved.precision, resolved.facts["precision"].origin) == (precision, origin)
    is_named = any(phrase.startswith("precision ") for phrase in resolved.assumed)
    assert is_named == (origin is Origin.PRESET)


def test_an_optimizer_of_the_config_comes_before_that_of_the_program() -> None:
    written = Subject(config={"optimizer": {"type": "Lion"}})
    both = resolve_job(Job(client_optimizer="SGD"), subject=written)
    assert (both.optimizer, both.facts["optimizer"].origin) == ("Lion", Origin.DS_CONFIG)
    client = resolve_job(Job(client_optimizer="SGD"))
    assert (client.optimizer, client.facts["optimizer"].origin) == ("SGD", Origin.OPTION)
    assert "optimizer AdamW (preset; --client-optimizer not given)" in resolve_job(Job()).assumed


def test_hf_arguments_make_the_trainer_the_launcher() -> None:
    arguments = _written("args.json", {})
    assert launcher_of(Job()) is Launcher.DEEPSPEED
    assert launcher_of(Job(hf_args=arguments)) is Launcher.HF
    assert launcher_of(Job(hf_args=arguments, launcher=Launcher.DEEPSPEED)) is Launcher.DEEPSPEED
    _written("autotune.yaml", {"launcher": "hf"})
    assert launcher_of(Job()) is Launcher.HF


def test_more_trained_parameters_than_there_are_is_refused() -> None:
    with pytest.raises(JobError, match=r"--trainable-params 9999999999: 7b has \d+ parameters"):
        resolve_job(Job(model="7b", trainable_params=9_999_999_999))
    # A rounded number of all parameters is not a fault.
    assert resolve_job(Job(params=7e9, trainable_params=7e9)).shape is not None
