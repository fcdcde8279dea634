"""Resolves one job from all sources: the same for `run`, `plan`, `gate` and Python.

Every source is a partial `Job`, in order of precedence: option, job file, ds_config,
TrainingArguments, record, preset. Each fact keeps its origin.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.errors import AutotuneError, JobError, NotJudgedError
from autotune.job.assumed_shape import ASSUMED, assumed_shape
from autotune.job.batch import Batch, resolve_batch
from autotune.job.job import Job
from autotune.job.job_file import find_job_file, read_job_file
from autotune.job.launcher import Launcher
from autotune.job.model_shape import ModelShape, load_model_shape, require_judgeable
from autotune.job.origin import Fact, Origin, assumed_phrases
from autotune.job.precision import precision_of
from autotune.job.site import DEFAULT_CEILING, Site, resolve_site
from autotune.job.trainer import job_of_hf_args, read_hf_args
from autotune.job.workload import DEFAULT_SEQ_LEN, TINY_SEQ_LEN
from autotune.lint.subject import Launch, Subject
from autotune.predict.links.probe_file import read_probe
from autotune.predict.program.model_facts import attention_of

DEFAULT_OPTIMIZER = "AdamW"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedJob:
    """The job of a record."""

    job: Job
    shape: ModelShape
    micro_batch_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedJob:
    """A completed job, with the origin of each fact."""

    job: Job
    """Every field from its first source; None without a source, presets excluded."""
    facts: Mapping[str, Fact]
    """The known fields, and `micro_batch_size`, `optimizer` and the presets that apply."""
    subject: Subject
    """The ds_config, empty if none is given, and the launch."""
    shape: ModelShape | None
    """The model's, or an assumed one if only its size is known."""
    not_judged: str | None
    """Why the memory of the model cannot be judged."""
    site: Site
    batch: Batch | None
    """None where the number of data-parallel ranks is not known."""
    seq_len: int
    precision: str
    optimizer: str
    attn_implementation: str

    @property
    def assumed(self) -> tuple[str, ...]:
        """The assumed facts, a phrase each."""
        return assumed_phrases(self.facts)

    def is_open(self, name: str) -> bool:
        """Whether no source states a fact."""
        fact = self.facts.get(name)
        return fact is None or fact.origin.is_assumed

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values: each fact with its origin."""
        return {name: fact.to_json() for name, fact in self.facts.items()}


def resolve_job(
    described: Job,
    *,
    subject: Subject | None = None,
    job_file: Path | None = None,
    record: RecordedJob | None = None,
    shape: ModelShape | None = None,
) -> ResolvedJob:
    """Complete a job from all sources.

    Args:
        described: the options.
        subject: the ds_config that is judged, or that of `--base`, with the launch settings of its
            file; None without one.
        job_file: the job file; None looks for `autotune.yaml` in the current folder.
        record: the job of a record, for `--baseline`.
        shape: replaces the model of the job.

    Raises:
        AutotuneError: a source is wrong; every fault is named.
    """
    path = find_job_file(job_file)
    sources = [(Origin.OPTION, described)]
    if path is not None:
        sources.append((Origin.JOB_FILE, read_job_file(path)))
    early, _ = _merged(sources)
    hf_args = read_hf_args(early.hf_args) if early.hf_args is not None else None
    subject = subject or Subject(config={})
    sources.append((Origin.DS_CONFIG, _job_of_subject(subject)))
    if hf_args is not None:
        sources.append((Origin.HF_ARGS, job_of_hf_args(hf_args)))
    if record is not None:
        sources.append((Origin.RECORD, record.job))
    job, facts = _merged(sources)
    not_judged = None
    try:
        shape = shape or _shape(job, record)
    except NotJudgedError as error:
        # Its ds_config can still be checked.
        not_judged = str(error)
    reader = _reader(job, subject, has_hf_args=hf_args is not None)
    launch = _launch(job, shape, launcher=reader, hf_args=hf_args)
    subject = replace(subject, launch=launch)
    try:
        facts["attn_implementation"] = _attention(facts, shape)
    except NotJudgedError as error:
        not_judged = str(error)
        facts["attn_implementation"] = _USUAL_ATTENTION
    site = resolve_site(job, probe=_probe(job))
    batch = _batch(subject, job, record)
    precision = precision_of(subject, job=job, facts=facts, device=site.device)
    facts = {
        **facts,
        **dict(_completed(facts, subject, shape, batch)),
        "precision": precision,
    }
    return ResolvedJob(
        job=job,
        facts=facts,
        subject=subject,
        shape=shape,
        not_judged=not_judged,
        site=site,
        batch=batch,
        seq_len=facts["seq_len"].value,
        precision=precision.value,
        optimizer=facts["optimizer"].value,
        attn_implementation=facts["attn_implementation"].value,
    )


def launcher_of(described: Job, job_file: Path | None = None) -> Launcher:
    """Return what reads the config first, by options and job file.

    Raises:
        JobError: the job file is wrong.
    """
    path = find_job_file(job_file)
    jobs = [described] if path is None else [described, read_job_file(path)]
    for job in jobs:
        if job.launcher is not None and job.launcher.reader is not None:
            return job.launcher.reader
    return Launcher.HF if any(job.hf_args is not None for job in jobs) else Launcher.DEEPSPEED


def _merged(sources: Sequence[tuple[Origin, Job]]) -> tuple[Job, dict[str, Fact]]:
    """Return the first value of every field, and its origin."""
    facts: dict[str, Fact] = {}
    for origin, source in sources:
        for name, value in source.given.items():
            if name not in facts and _RIVALS.get(name) not in facts:
                facts[name] = Fact(value=value, origin=origin)
    return Job(**{name: fact.value for name, fact in facts.items()}), facts


_RIVALS = {
    "model": "params",
    "params": "model",
    "nodes": "gpus_per_node",
    "gpus_per_node": "nodes",
}
"""Pairs of fields that exclude each other: a later source may state the other one."""


def _job_of_subject(subject: Subject) -> Job:
    """Return the launch settings of an Accelerate or gpt-neox YAML."""
    launch = subject.launch
    gpus, nodes = launch.gpus, launch.nodes
    return Job(
        launcher=Launcher.ACCELERATE if subject.form == "accelerate" else None,
        gpus=gpus,
        # A rule reports counts that contradict each other.
        nodes=nodes if nodes and gpus and gpus % nodes == 0 else None,
        pipeline_stages=launch.pipeline_stages,
        tensor_parallel=launch.tensor_parallel,
        seq_len=launch.seq_len,
        cpu_threads=launch.cpu_threads,
    )


def _shape(job: Job, record: RecordedJob | None) -> ModelShape | None:
    if job.model is not None:
        shape = load_model_shape(job.model)
    elif job.params is not None:
        shape = assumed_shape(job.params)
    else:
        return None if record is None else record.shape
    trained = job.trainable_params
    if trained is not None and trained > shape.num_parameters * (1 + _ROUNDING):
        raise JobError(
            f"--trainable-params {trained:.15g}: {shape.name} has {shape.num_parameters} "
            "parameters; give fewer, or leave the option out to train all of them"
        )
    return shape


_ROUNDING = 0.01
"""Users round numbers of parameters by this share."""


_USUAL_ATTENTION = Fact(value="sdpa", origin=Origin.TRANSFORMERS)


def _attention(facts: Mapping[str, Fact], shape: ModelShape | None) -> Fact:
    """Return the model's attention, by default the one that the installed transformers chooses.

    Raises:
        WorkloadError: the model does not support the requested one.
        NotJudgedError: a part of the model is not modelled; or transformers cannot build it, or is
            not installed.
    """
    asked = facts.get("attn_implementation")
    if shape is None or shape.hf_config.get(ASSUMED):
        return asked or _USUAL_ATTENTION
    require_judgeable(shape)
    try:
        name = attention_of(shape)
    except AutotuneError as error:
        raise NotJudgedError(f"memory is not judged: {error}") from error
    if asked is None:
        return Fact(value=name, origin=Origin.TRANSFORMERS)
    return replace(asked, value=attention_of(shape, asked.value))


def _launch(
    job: Job,
    shape: ModelShape | None,
    *,
    launcher: Launcher,
    hf_args: Mapping[str, Any] | None,
) -> Launch:
    params = job.params
    size = shape.num_parameters if shape is not None else None
    if params is not None:
        size = round(params)
    trained = job.trainable_params
    return Launch(
        launcher=launcher,
        gpus=job.gpus,
        nodes=job.nodes,
        pipeline_stages=job.pipeline_stages,
        tensor_parallel=job.tensor_parallel,
        client_optimizer=job.client_optimizer if hf_args is None else None,
        hf_args=hf_args,
        model=None if params is not None else shape,
        num_parameters=size,
        num_trainable=None if trained is None else round(trained),
        largest_parameter=job.largest_parameter,
        seq_len=job.seq_len,
        activation_checkpointing=job.activation_checkpointing,
        started_by=None if job.launcher is None else job.launcher.starter,
        cpu_threads=job.cpu_threads,
    )


def _reader(job: Job, subject: Subject, *, has_hf_args: bool) -> Launcher:
    """Return what reads the config first."""
    if job.launcher is not None and job.launcher.reader is not None:
        return job.launcher.reader
    is_hf = has_hf_args or subject.launch.launcher is Launcher.HF
    return Launcher.HF if is_hf else Launcher.DEEPSPEED


def _probe(job: Job) -> Mapping[str, Any] | None:
    return None if job.probe is None else read_probe(job.probe)


def _batch(subject: Subject, job: Job, record: RecordedJob | None) -> Batch | None:
    ranks = subject.launch.data_parallel
    if ranks is None:
        return None
    return resolve_batch(
        subject,
        ranks=ranks,
        global_batch_size=job.global_batch_size,
        recorded=None if record is None else record.micro_batch_size,
    )


def _completed(
    facts: Mapping[str, Fact], subject: Subject, shape: ModelShape | None, batch: Batch | None
) -> Iterator[tuple[str, Fact]]:
    """Yield the facts that are not fields of a job, and the presets."""
    if "seq_len" not in facts:
        yield "seq_len", Fact(value=preset_seq_len(shape), origin=Origin.PRESET)
    written = subject.value("optimizer.type")
    if isinstance(written, str) and written != "auto":
        yield "optimizer", Fact(value=written, origin=Origin.DS_CONFIG)
    elif (client := facts.get("client_optimizer")) is not None:
        yield "optimizer", client
    else:
        yield "optimizer", Fact(value=DEFAULT_OPTIMIZER, origin=Origin.PRESET)
    if batch is not None and batch.origin is not None:
        yield "micro_batch_size", Fact(value=batch.micro, origin=batch.origin)
    if "memory_ceiling" not in facts:
        yield "memory_ceiling", Fact(value=DEFAULT_CEILING, origin=Origin.PRESET)


def preset_seq_len(shape: ModelShape | None) -> int:
    """Return the tokens per sequence if no source states them."""
    if shape is None:
        return DEFAULT_SEQ_LEN
    longest = TINY_SEQ_LEN if shape.name == "tiny" else DEFAULT_SEQ_LEN
    return min(longest, shape.max_position_embeddings or longest)
