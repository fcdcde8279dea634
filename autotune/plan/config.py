"""The estimate of one ds_config."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from autotune import dotted
from autotune.ds_config.auto import resolve_auto
from autotune.ds_config.build import BATCH_KEYS, MICRO_BATCH
from autotune.job.cpu_threads import CpuThreads
from autotune.job.device import Device
from autotune.lint.check import lint
from autotune.lint.finding import Finding, Severity
from autotune.lint.subject import Launch, Launcher, Subject
from autotune.plan.request import PlanRequest
from autotune.predict.gpu_counts import smallest_fitting
from autotune.predict.memory.estimate import MemoryEstimate
from autotune.predict.memory.predict import predict_memory
from autotune.predict.throughput import Throughput, predict_throughput
from autotune.predict.training_job import Training, read_training


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigPlan:
    """What a ds_config needs and how fast it should run."""

    training: Training
    device: Device
    estimate: MemoryEstimate
    throughput: Throughput
    cpu_threads: CpuThreads
    """Of a rank; they decide the speed of an offloaded optimizer."""
    smallest_gpus: int | None
    """The fewest GPUs of this type on which it fits, at the same micro batch."""
    replaced: Mapping[str, int] = field(default_factory=dict)
    """Batch sizes of the config that `--global-batch-size` took the place of."""
    errors: tuple[Finding, ...] = ()
    """Why the config would not run as it says, by the rules of `autotune gate`; the estimate
    covers what could be read."""

    @property
    def fits(self) -> bool:
        """Whether device and host have room."""
        return self.estimate.fits is True

    @property
    def batch(self) -> Mapping[str, int]:
        """What the plan is for, by DeepSpeed's keys."""
        return _batch(self.training)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values: what `autotune plan DS_CONFIG --json` prints."""
        training = self.training
        return {
            "memory": self.estimate.to_json(),
            "throughput": self.throughput.to_json(),
            "fits": self.fits,
            "smallest_gpus": self.smallest_gpus,
            "errors": [error.to_json() for error in self.errors],
            "device": self.device.name,
            "cpu_threads": asdict(self.cpu_threads),
            "workload": {
                "model": training.model.name,
                "gpus": training.world_size,
                "seq_len": training.seq_len,
                "precision": training.precision,
                "micro_batch_size": training.micro_batch_size,
                "gradient_accumulation_steps": training.accumulation,
                "global_batch_size": self.batch["train_batch_size"],
            },
            "model_settings": {
                "activation_checkpointing": training.activation_checkpointing,
                "attn_implementation": training.attn_implementation,
            },
        }


def plan_config(request: PlanRequest) -> ConfigPlan:
    """Predict memory and speed of the request's ds_config.

    Raises:
        AutotuneError: the request or a file of it is wrong; every fault is named.
    """
    workload = request.workload(request.gpus)
    # "auto" is Hugging Face's word; what it stands for is Hugging Face's formula.
    ds_config = request.sized(resolve_auto(request.base, workload), workload)
    training = read_training(ds_config, workload, request.settings())
    estimate = predict_memory(training, request.surroundings(request.gpus), find_limit=True)
    return ConfigPlan(
        training=training,
        device=request.device,
        estimate=estimate,
        throughput=predict_throughput(training, request.speed_surroundings(request.gpus)),
        cpu_threads=request.threads(request.gpus),
        smallest_gpus=smallest_fitting(lambda gpus: _fits(request, training, gpus)),
        replaced=_replaced(request.base, training),
        errors=refusals(request),
    )


def _batch(training: Training) -> dict[str, int]:
    per_step = training.micro_batch_size * training.accumulation
    return {
        "train_batch_size": per_step * training.world_size,
        MICRO_BATCH: training.micro_batch_size,
        "gradient_accumulation_steps": training.accumulation,
    }


def _replaced(base: Mapping[str, Any], training: Training) -> dict[str, int]:
    """Return the batch sizes that the config gives and the plan is not for."""
    return {
        key: base[key]
        for key, size in _batch(training).items()
        if base.get(key, "auto") not in ("auto", size)
    }


def refusals(request: PlanRequest) -> tuple[Finding, ...]:
    """Return what the gate's rules refuse in the config as it was given."""
    autos = "auto" in dotted.flatten(request.base).values()
    launch = Launch(
        launcher=Launcher.HF if autos else Launcher.DEEPSPEED,
        gpus=request.gpus,
        nodes=request.nodes,
        model=request.shape,
        num_parameters=request.shape.num_parameters,
        num_trainable=request.trainable_parameters,
        seq_len=request.seq_len,
        activation_checkpointing=request.activation_checkpointing,
    )
    workload = request.workload(request.gpus)
    config = request.sized(request.base, workload)
    if not BATCH_KEYS & config.keys():
        # The workload has a batch where the config leaves it to its program.
        config["train_batch_size"] = workload.global_batch_size
    found = lint(Subject(config=config, launch=launch))
    return tuple(finding for finding in found if finding.severity is Severity.ERROR)


def _fits(request: PlanRequest, training: Training, gpus: int) -> bool:
    """Whether the same micro step fits on another number of ranks."""
    if gpus % training.expert_parallel_size:
        return False
    other = replace(training, world_size=gpus)
    return predict_memory(other, request.surroundings(gpus)).fits is True
