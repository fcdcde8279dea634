"""Plan several numbers of GPUs: how the best config, its speed and its cost change."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from autotune.errors import AutotuneError, HardwareError
from autotune.job.device import Device
from autotune.lint.finding import Finding
from autotune.planning.config import plan_config
from autotune.planning.request import PlanRequest
from autotune.planning.space import may_fit, screen
from autotune.predict.links.networks import Network
from autotune.predict.memory.estimate import MemoryEstimate
from autotune.predict.memory.fit import Answer
from autotune.predict.memory.predict import predict_memory
from autotune.predict.throughput import Throughput, predict_throughput
from autotune.predict.training_job import Training
from autotune.space import load_space
from autotune.space.proposal import Scalar

_S_PER_HOUR = 3_600
MAX_REPLAYED = 24
"""Most proposals to replay that do not fit by closed form, which may be 15 % too high."""


_MAY_RUN = (Answer.FITS, Answer.NOT_JUDGED)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One number of GPUs."""

    gpus: int
    values: Mapping[str, Scalar] | None = None
    """The fastest proposal that fits; None for a ds_config, or if nothing fits."""
    training: Training | None = None
    estimate: MemoryEstimate | None = None
    throughput: Throughput | None = None
    errors: tuple[Finding, ...] = ()
    """Errors of the gate in the ds_config, memory apart."""
    problem: str | None = None
    """Why there is no plan."""
    answer: Answer | None = None
    """Whether a ds_config fits in memory; None for a space."""

    @property
    def fits(self) -> bool:
        """Whether the config, or anything of the space, fits or is not judged."""
        if self.estimate is None:
            return False
        return self.estimate.fits is True if self.answer is None else self.answer in _MAY_RUN

    @property
    def communication_share(self) -> float:
        """Share of a step that waits for communication."""
        assert self.throughput is not None
        return self.throughput.items["communication"] / self.throughput.step_s

    def gpu_hours(self, tokens: float) -> float:
        """Return the GPU-hours of training on a number of tokens."""
        assert self.throughput is not None
        return tokens / self.throughput.tokens_per_s * self.gpus / _S_PER_HOUR

    def to_json(self, *, tokens: float | None) -> dict[str, Any]:
        """Return plain JSON values."""
        printed: dict[str, Any] = {"gpus": self.gpus, "fits": self.fits, "problem": self.problem}
        if self.training is None or self.estimate is None or self.throughput is None:
            return printed
        printed |= {
            "best": dict(self.values) if self.values is not None else None,
            "zero_stage": self.training.zero.stage,
            "micro_batch_size": self.training.micro_batch_size,
            "gradient_accumulation_steps": self.training.accumulation,
            "activation_checkpointing": self.training.activation_checkpointing,
            "memory": self.estimate.to_json(),
            "throughput": self.throughput.to_json(),
            "communication_share": self.communication_share,
            "errors": [error.to_json() for error in self.errors],
        }
        if tokens is not None:
            printed["gpu_hours"] = self.gpu_hours(tokens)
        return printed


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleOutPlan:
    """Several numbers of GPUs, ascending."""

    model: str
    device: Device
    network: Network
    space: str | None
    worlds: tuple[World, ...]
    tokens: float | None
    """The budget whose cost is printed."""

    @property
    def fits(self) -> bool:
        """Whether anything fits on any number of GPUs."""
        return any(world.fits for world in self.worlds)

    @property
    def communication_takes_over_at(self) -> int | None:
        """The first number of GPUs on which communication is the largest part of a step."""
        for world in self.worlds:
            items = world.throughput.items if world.throughput else {}
            if items and items["communication"] >= max(items.values()):
                return world.gpus
        return None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values: what `autotune plan --gpus 8,64 --json` prints."""
        return {
            "model": self.model,
            "device": self.device.name,
            "network": self.network.name,
            "space": self.space,
            "tokens": self.tokens,
            "fits": self.fits,
            "communication_takes_over_at": self.communication_takes_over_at,
            "worlds": [world.to_json(tokens=self.tokens) for world in self.worlds],
        }


def read_counts(
    text: str, *, nodes: int | None = None, tokens: float | None = None
) -> tuple[int, ...]:
    """Read `--gpus`: one number, or several with commas between.

    Args:
        text: what the user wrote.
        nodes: `--nodes`, for one number only.
        tokens: `--tokens`, for several only.

    Raises:
        HardwareError: not whole numbers, or options that exclude each other.

    Example:
        >>> read_counts("8,64")
        (8, 64)
    """
    faults = []
    pieces = [piece.strip() for piece in text.split(",")]
    if not all(piece.isdecimal() for piece in pieces):
        raise HardwareError(f"--gpus {text}: must be a whole number, or several such as 8,64,512")
    counts = tuple(int(piece) for piece in pieces)
    if len(counts) > 1 and nodes is not None:
        faults.append(f"--nodes {nodes}: goes with one number of GPUs; use --gpus-per-node")
    if len(counts) == 1 and tokens is not None:
        faults.append(f"--tokens {tokens:g}: goes with several numbers of GPUs, such as 8,64,512")
    if tokens is not None and not 0 < tokens < math.inf:
        faults.append(f"--tokens {tokens:g}: must be above 0")
    if faults:
        raise HardwareError(*faults)
    return counts


def plan_scale_out(
    request: PlanRequest, counts: Iterable[int], *, tokens: float | None = None
) -> ScaleOutPlan:
    """Predict one ds_config, or the fastest of a space, on several numbers of GPUs.

    A number on which the job cannot be trained (its ranks do not divide the global batch) is a
    `World` with a `problem`.

    Args:
        request: what is planned; its own number of GPUs is ignored.
        counts: numbers of GPUs.
        tokens: a budget, for its cost in GPU-hours.

    Raises:
        AutotuneError: the request or a file of it is wrong; every fault is named.
    """
    of_one = _fastest if request.space is not None else _config
    if request.space is not None:
        load_space(request.space)
    worlds: list[World] = []
    refused: list[AutotuneError] = []
    known: PlanRequest | None = None
    for gpus in sorted(set(counts)):
        one = request.on(gpus)
        try:
            _ = one.device, one.network, one.speed_surroundings
            known = known or one
            worlds.append(of_one(one))
        except AutotuneError as error:
            refused.append(error)
            worlds.append(World(gpus=gpus, problem="; ".join(error.faults)))
    # A fault that every number has is a fault of the request.
    same = len(refused) == len(worlds) and len({error.faults for error in refused}) == 1
    if known is None or same:
        raise refused[0]
    return ScaleOutPlan(
        model=_name(known),
        device=known.device,
        network=known.network,
        space=request.space,
        worlds=tuple(worlds),
        tokens=tokens,
    )


def _config(request: PlanRequest) -> World:
    plan = plan_config(request)
    return World(
        gpus=request.gpus,
        training=plan.training,
        estimate=plan.estimate,
        throughput=plan.throughput,
        errors=plan.errors,
        problem=None if plan.training else plan.answer.reason,
        answer=plan.answer.answer,
    )


def _name(request: PlanRequest) -> str:
    assert request.resolved.shape is not None
    return request.resolved.shape.name


def _estimate(request: PlanRequest, training: Training) -> MemoryEstimate:
    # With the limit, as for one number of GPUs: the estimate then says why it does not fit.
    return predict_memory(training, request.surroundings, find_limit=True)


def _fastest(request: PlanRequest) -> World:
    """Return the fastest proposal of the space that fits by replay.

    The closed form, which is cheap, may be too high: a proposal slightly above is replayed too.
    """
    assert request.space is not None
    workload = request.workload
    around = request.speed_surroundings
    found = [
        (predict_throughput(screened.training, around), screened)
        for screened in screen(request, load_space(request.space), workload)
        if may_fit(screened.estimate)
    ]
    found.sort(key=lambda pair: -pair[0].tokens_per_s)
    left = MAX_REPLAYED
    for throughput, screened in found:
        if not screened.estimate.fits:
            left -= 1
            if left < 0:
                continue
        estimate = _estimate(request, screened.training)
        if estimate.fits:
            return World(
                gpus=request.gpus,
                values=screened.proposal.values,
                training=screened.training,
                estimate=estimate,
                throughput=throughput,
            )
    return World(gpus=request.gpus, problem="nothing of the space fits")
