"""Batch sizes: the product that DeepSpeed asserts, at the planned number of ranks.

Source: DeepSpeed 0.19.8, runtime/config.py: `_set_batch_related_parameters` fills what is missing
with whole divisions, and `_batch_assertion` compares the product.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from autotune import dotted
from autotune.job.launcher import Launcher
from autotune.lint.finding import RefusedBy, Severity
from autotune.lint.format_value import format_value
from autotune.lint.rule import Fault, rule
from autotune.lint.subject import Subject

TRAIN = "train_batch_size"
MICRO = "train_micro_batch_size_per_gpu"
STEPS = "gradient_accumulation_steps"
_KEYS = (TRAIN, MICRO, STEPS)
_SEQUENCE_PARALLEL = "sequence_parallel_size"
"""Ranks that share a sequence count as one for the batch (runtime/config.py: __init__)."""
_DATA_PARALLEL = "data_parallel_size"
"""With the other key it makes a mesh, which the program controls (deepspeed/__init__.py); alone it
is not read."""
_LARGEST = 1e300
"""The largest size that is checked; a larger one may not convert to float."""
_COUNTABLE = 2**31
"""No other sizes are proposed for sizes above this."""
_MOST_TRIED = 1024
"""The largest micro batch that is proposed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    """Sizes as the config gives them; None is for DeepSpeed to fill in."""

    train: int | float | None
    micro: int | float | None
    steps: int | float | None
    ranks: int | None
    """Data-parallel ranks of the planned run; None if they are not known."""

    @property
    def unit(self) -> int | float:
        """What the train batch size must be a multiple of."""
        return (self.micro or 1) * (self.steps or 1) * (self.ranks or 1)

    @property
    def holds(self) -> bool:
        """Whether DeepSpeed accepts the sizes; with unknown ranks, on any number of them."""
        if self.train is None:
            return True
        if self.micro is None or self.steps is None or self.ranks is None:
            return self.train % self.unit == 0
        return self.train == self.unit


@rule("batch-arithmetic", Severity.ERROR, refused_by=RefusedBy.PARSE)
def batch_arithmetic(subject: Subject) -> Iterator[Fault]:
    """The batch sizes do not multiply to the train batch size, or none is given.

    DeepSpeed asserts train_batch_size = train_micro_batch_size_per_gpu x
    gradient_accumulation_steps x data-parallel ranks, after it has filled in what is missing
    (`runtime/config.py: _set_batch_related_parameters`, `_batch_assertion`). Data-parallel ranks
    are the devices of the whole job divided by pipeline stages and by tensor-parallel ranks. At
    least one of the two batch sizes is required.

    The gate uses the ranks of the planned run (`--gpus`). Where they are not known, only sizes that
    match no number of ranks are a fault.

    Suggestion: fix the size that is named, or leave one of the three out and let DeepSpeed compute
    it.
    """
    values = {key: dotted.get(subject.config, key) for key in _KEYS}
    resolved = subject.launch.launcher is Launcher.HF
    autos = {key for key, value in values.items() if value == "auto"}
    sizes = {key: None if key in autos else value for key, value in values.items()}
    if (autos and not resolved) or not all(map(_is_size, sizes.values())):
        return  # Reported by another rule.
    if resolved and STEPS not in subject.config:
        sizes[STEPS] = 1  # accelerate, utils/dataclasses.py: DeepSpeedPlugin
    if values[TRAIN] is None and values[MICRO] is None:
        yield from _no_size(values[STEPS])
        return
    too_small = [key for key, size in sizes.items() if size is not None and not size > 0]
    for key in too_small:
        yield Fault(
            field=key,
            message=f"{key}={format_value(sizes[key])}: must be at least 1",
            suggestion="write 1 or more, or leave it out",
        )
    if any(isinstance(size, float) for size in sizes.values()):
        # Python cannot multiply a float by an integer that is too large for a float.
        sizes = {key: None if size is None else float(size) for key, size in sizes.items()}
    batch = _Batch(
        train=sizes[TRAIN], micro=sizes[MICRO], steps=sizes[STEPS], ranks=_ranks(subject)
    )
    if not too_small and not batch.holds:
        yield _no_product(batch)
        yield from _other_steps(batch)


RULES = (batch_arithmetic,)


def _is_size(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and abs(value) <= _LARGEST)


def _ranks(subject: Subject) -> int | None:
    ranks = subject.launch.data_parallel
    if _SEQUENCE_PARALLEL not in subject.config:
        return ranks
    shared = subject.number(_SEQUENCE_PARALLEL)
    if ranks is None or _DATA_PARALLEL in subject.config or not shared or ranks % shared:
        return None
    return int(ranks / shared)


def _no_size(steps: object) -> Iterator[Fault]:
    yield Fault(
        field=MICRO,
        message=f"{MICRO}: neither it nor {TRAIN} is given",
        suggestion=f"give {MICRO}, the samples that one rank takes at once",
    )
    if steps is not None:
        yield Fault(
            field=TRAIN,
            message=f"{TRAIN}: {STEPS}={format_value(steps)} alone does not determine it",
            suggestion=f"give it, or {MICRO}",
            severity=Severity.WARNING,
        )


def _no_product(batch: _Batch) -> Fault:
    exact = batch.micro is not None and batch.steps is not None and batch.ranks is not None
    factors = [
        (MICRO, batch.micro),
        (STEPS, batch.steps),
        ("data-parallel ranks", batch.ranks),
    ]
    known = [(name, size) for name, size in factors if size is not None]
    if not known:
        return Fault(
            field=TRAIN, message=f"{TRAIN}={format_value(batch.train)}: must be a whole number"
        )
    names = " x ".join(name for name, _ in known)
    product = " x ".join(format_value(size) for _, size in known)
    equation = f"{names} = {product}" + (f" = {format_value(batch.unit)}" if len(known) > 1 else "")
    return Fault(
        field=TRAIN,
        message=f"{TRAIN}={format_value(batch.train)}: must be "
        + ("" if exact else "a multiple of ")
        + equation,
        suggestion="; or ".join(_alternatives(batch)) or None,
    )


def _other_steps(batch: _Batch) -> Iterator[Fault]:
    """Yield the accumulation that would keep the other sizes, as a fault of its own key."""
    if batch.train is None or not (batch.micro and batch.steps and batch.ranks):
        return
    steps, rest = divmod(batch.train, batch.micro * batch.ranks)
    if rest == 0:
        yield Fault(
            field=STEPS,
            message=f"{STEPS}={format_value(batch.steps)}: {format_value(steps)} would keep "
            f"{TRAIN}={format_value(batch.train)}",
            suggestion=f"{STEPS}: {format_value(steps)}",
            severity=Severity.WARNING,
        )


def _alternatives(batch: _Batch) -> Iterator[str]:
    """Yield the nearest valid sizes, the one that keeps the train batch size first."""
    train, unit = batch.train or 0, batch.unit
    if not all(_is_count(size) for size in (train, batch.micro, batch.steps)):
        return
    if batch.micro and batch.steps and batch.ranks:
        per_step = batch.micro * batch.ranks
        if train % per_step == 0:
            yield f"{STEPS}: {format_value(train // per_step)}"
        yield f"{TRAIN}: {format_value(unit)}"
        if train % (batch.micro * batch.steps) == 0:
            ranks = train // (batch.micro * batch.steps)
            yield f"run it on {format_value(ranks)} data-parallel ranks"
        return
    below = train // unit * unit
    nearest = [size for size in (below, below + unit) if size > 0]
    yield f"{TRAIN}: " + " or ".join(format_value(size) for size in nearest)
    if batch.micro and batch.ranks and train % batch.ranks == 0:
        per_rank = train // batch.ranks
        sizes = range(int(min(batch.micro, per_rank, _MOST_TRIED)), 0, -1)
        yield f"{MICRO}: {next(size for size in sizes if per_rank % size == 0)}"


def _is_count(size: int | float | None) -> bool:
    return size is None or (size < _COUNTABLE and size == int(size))
