"""Plan a search space: what fits, a line per stage, offload and checkpointing."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any

from autotune.ds_config.build import build_ds_config
from autotune.ds_config.fields.table import default_of
from autotune.errors import WorkloadError
from autotune.job.cpu_threads import CpuThreads
from autotune.job.device import Device
from autotune.job.workload import Workload
from autotune.planning.request import PlanRequest
from autotune.predict.gpu_counts import smallest_fitting
from autotune.predict.memory.error_margins import CLOSED_FORM_SLACK
from autotune.predict.memory.estimate import MemoryEstimate
from autotune.predict.memory.predict import predict_memory, screen_memory
from autotune.predict.throughput import Throughput, predict_throughput
from autotune.predict.training_job import Training, read_training
from autotune.space import Choices, Parameter, SearchSpace, load_space
from autotune.space.proposal import Proposal, Scalar

MAX_PROPOSALS = 10_000
_GROUP_KEYS = (
    "zero_optimization.stage",
    "zero_optimization.offload_optimizer.device",
    "zero_optimization.offload_param.device",
    "model.activation_checkpointing",
)
"""Keys with the largest effect on memory; a line of the table per combination."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceLine:
    """Proposals that share stage, offload and checkpointing."""

    values: Mapping[str, Scalar]
    num_proposals: int
    num_fitting: int
    """By the closed form."""
    best: Proposal | None
    """The fitting proposal with the largest micro batch, confirmed by replay; None if none."""
    estimate: MemoryEstimate
    """Of `best`, or of the smallest proposal."""
    throughput: Throughput

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "values": dict(self.values),
            "num_proposals": self.num_proposals,
            "num_fitting": self.num_fitting,
            "best": dict(self.best.values) if self.best else None,
            "memory": self.estimate.to_json(),
            "throughput": self.throughput.to_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SpacePlan:
    """The lines of a space."""

    space: str
    workload: Workload
    device: Device
    lines: tuple[SpaceLine, ...]
    cpu_threads: CpuThreads
    """Of a rank; the speed of an offloaded optimizer depends on them."""
    smallest_gpus: int | None
    """The smallest number of GPUs of this type on which anything of the space fits."""

    @property
    def fits(self) -> bool:
        """Whether anything fits."""
        return any(line.best for line in self.lines)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values: what `autotune plan --space ... --json` prints."""
        return {
            "space": self.space,
            "gpus": self.workload.world_size,
            "device": self.device.name,
            "fits": self.fits,
            "cpu_threads": asdict(self.cpu_threads),
            "smallest_gpus": self.smallest_gpus,
            "lines": [line.to_json() for line in self.lines],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """A proposal and its memory by closed form."""

    proposal: Proposal
    training: Training
    estimate: MemoryEstimate


def plan_space(request: PlanRequest) -> SpacePlan:
    """Screen a space by closed form and confirm the best of each line by replay.

    Raises:
        AutotuneError: the request or a file of it is wrong; every fault is named.
    """
    assert request.space is not None
    space = load_space(request.space)
    workload = request.workload
    groups = _groups(request, space, workload)
    lines = [_line(group, request) for group in groups]
    smallest = [_smallest(group).training for group in groups]
    return SpacePlan(
        space=space.name,
        workload=workload,
        device=request.device,
        lines=tuple(lines),
        cpu_threads=request.resolved.site.cpu_threads,
        smallest_gpus=smallest_fitting(lambda gpus: _anything_fits(request, smallest, gpus)),
    )


def proposals(space: SearchSpace) -> Iterator[Proposal]:
    """Yield the points of a bound space: every choice, and each range at DeepSpeed's default.

    Ranges count in elements and change memory less than the choices do; a study varies them.
    """
    seen = set()
    for values in _points(space.parameters, {}):
        proposal = space.canonical(values)
        if proposal not in seen:
            seen.add(proposal)
            yield proposal


def _points(rest: tuple[Parameter, ...], chosen: dict[str, Scalar]) -> Iterator[dict[str, Scalar]]:
    """Yield the points that start as chosen, without keys whose condition does not hold."""
    if not rest:
        yield chosen
        return
    parameter, *others = rest
    values: tuple[Scalar | None, ...] = _values(parameter) if parameter.acts(chosen) else (None,)
    for value in values:
        added = {} if value is None else {parameter.key: value}
        yield from _points(tuple(others), chosen | added)


def _values(parameter: Parameter) -> tuple[Scalar, ...]:
    kind = parameter.kind
    if isinstance(kind, Choices):
        return kind.values
    usual = default_of(parameter.key)
    if not isinstance(usual, int | float):
        usual = kind.high
    return (parameter.snap(type(kind.low)(min(max(usual, kind.low), kind.high))),)


def screen(request: PlanRequest, space: SearchSpace, workload: Workload) -> Iterator[Screened]:
    """Yield the points of a space with their memory by closed form, in the order of the space."""
    bound = space.bind(workload, request.base or None)
    searched = [p.key for p in bound.parameters]
    surroundings = request.surroundings
    for proposal in islice(proposals(bound), MAX_PROPOSALS):
        training = _training(request, workload, proposal, searched)
        yield Screened(
            proposal=proposal, training=training, estimate=screen_memory(training, surroundings)
        )


def may_fit(estimate: MemoryEstimate) -> bool:
    """Whether a proposal with this closed-form estimate may fit by replay."""
    ceiling_bytes = estimate.device.ceiling_bytes
    too_large = (
        ceiling_bytes is not None
        and estimate.device.needed_bytes > CLOSED_FORM_SLACK * ceiling_bytes
    )
    return not too_large and estimate.host.fits is not False


def _groups(request: PlanRequest, space: SearchSpace, workload: Workload) -> list[list[Screened]]:
    """Screen a space and sort it into lines."""
    groups: dict[tuple[Scalar, ...], list[Screened]] = {}
    for screened in screen(request, space, workload):
        key = tuple(screened.proposal.values.get(name, "") for name in _GROUP_KEYS)
        groups.setdefault(key, []).append(screened)
    return list(groups.values())


def _training(
    request: PlanRequest, workload: Workload, proposal: Proposal, searched: list[str]
) -> Training:
    ds_config = build_ds_config(request.base, workload, proposal.ds_values, searched=searched)
    settings = request.settings(proposal.model_settings)
    return read_training(ds_config, workload, settings)


def _line(group: list[Screened], request: PlanRequest) -> SpaceLine:
    """Replay the largest micro batch that fits, or the smallest proposal if none does."""
    surroundings = request.surroundings
    fitting = [s for s in group if s.estimate.fits]
    fitting.sort(key=lambda s: (-s.training.micro_batch_size, s.estimate.device.needed_bytes))
    chosen = None
    for screened in fitting:
        estimate = predict_memory(screened.training, surroundings)
        if estimate.fits:
            chosen = screened
            break
    if chosen is None:
        smallest = _smallest(group)
        estimate = predict_memory(smallest.training, surroundings)
        chosen = smallest if estimate.fits else None
        training = smallest.training
    else:
        training = chosen.training
    first = group[0].proposal.values
    return SpaceLine(
        values={name: first[name] for name in _GROUP_KEYS if name in first},
        num_proposals=len(group),
        num_fitting=len(fitting),
        best=chosen.proposal if chosen else None,
        estimate=estimate,
        throughput=predict_throughput(training, request.speed_surroundings),
    )


def _smallest(group: list[Screened]) -> Screened:
    return min(group, key=lambda screened: screened.estimate.device.needed_bytes)


def _anything_fits(request: PlanRequest, smallest: list[Training], gpus: int) -> bool:
    """Whether the smallest proposal of any line fits on another number of GPUs."""
    other = request.on(gpus)
    try:
        workload = other.workload
    except WorkloadError:
        # The ranks do not divide the global batch.
        return False
    surroundings = other.surroundings
    moved = [
        replace(
            training,
            world_size=gpus,
            accumulation=max(workload.sequences_per_rank // training.micro_batch_size, 1),
        )
        for training in smallest
        if workload.sequences_per_rank % training.micro_batch_size == 0
    ]
    screened = [(screen_memory(training, surroundings), training) for training in moved]
    candidates = [
        (estimate.device.needed_bytes, training)
        for estimate, training in screened
        if may_fit(estimate)
    ]
    candidates.sort(key=lambda pair: pair[0])
    return any(predict_memory(training, surroundings).fits for _, training in candidates)
