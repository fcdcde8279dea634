"""The search space: its files, its conditions, and the one form of each point."""

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune import dotted
from autotune.ds_config.fields.table import default_of
from autotune.ds_config.identity import identity
from autotune.ds_config.inert import inert_keys
from autotune.errors import SpaceError
from autotune.job.model_shape import ModelShape, load_model_shape
from autotune.job.workload import Workload
from autotune.space import (
    Choices,
    FloatRange,
    IntRange,
    Parameter,
    SearchSpace,
    load_space,
    space_names,
)
from autotune.space.proposal import MODEL_PREFIX, Scalar
from autotune.space.searchable import MODEL_FIELDS
from tests.space.written import space_of

ZERO = "zero_optimization"
ZERO_SPACE = load_space("zero")


def draw(parameter: Parameter, rng: random.Random) -> Scalar:
    kind = parameter.kind
    if isinstance(kind, Choices):
        return rng.choice(kind.values)
    if isinstance(kind, IntRange):
        return rng.randrange(kind.low, kind.high + 1, kind.step)
    return rng.uniform(kind.low, kind.high)


def sample(space: SearchSpace, seed: int) -> dict[str, Scalar]:
    """Draw a point as the sampler does: keys whose condition does not hold get no value."""
    rng = random.Random(seed)
    values: dict[str, Scalar] = {}
    for parameter in space.parameters:
        if parameter.acts(values):
            values[parameter.key] = draw(parameter, rng)
    return values


def workload(model: ModelShape, **changes: Any) -> Workload:
    values: dict[str, Any] = {
        "model": model,
        "seq_len": 128,
        "global_batch_size": 64,
        "world_size": 2,
        "precision": "bf16",
        "optimizer": {"type": "AdamW"},
        "gradient_clipping": 1.0,
    }
    return Workload(**values | changes)


@pytest.fixture(scope="module")
def tiny() -> ModelShape:
    return load_model_shape("tiny")


# --- the spaces that come with autotune


@pytest.mark.parametrize("name", space_names())
def test_every_space_that_comes_with_autotune_loads(name: str) -> None:
    assert load_space(name).parameters


def test_the_zero_space_has_the_keys_that_were_asked_for() -> None:
    assert {parameter.key for parameter in ZERO_SPACE.parameters} == {
        "train_micro_batch_size_per_gpu",
        "model.activation_checkpointing",
        f"{ZERO}.stage",
        f"{ZERO}.offload_optimizer.device",
        f"{ZERO}.offload_param.device",
        f"{ZERO}.reduce_bucket_size",
        f"{ZERO}.allgather_bucket_size",
        f"{ZERO}.overlap_comm",
        f"{ZERO}.contiguous_gradients",
        f"{ZERO}.stage3_prefetch_bucket_size",
        f"{ZERO}.stage3_param_persistence_threshold",
        f"{ZERO}.stage3_max_live_parameters",
        f"{ZERO}.stage3_max_reuse_distance",
        f"{ZERO}.sub_group_size",
    }


@pytest.mark.parametrize("parameter", ZERO_SPACE.parameters, ids=lambda p: p.key)
def test_the_zero_space_holds_deepspeeds_default(parameter: Parameter) -> None:
    default = None if parameter.key in MODEL_FIELDS else default_of(parameter.key)
    if default is not None:
        assert parameter.kind.holds(default)


@settings(deadline=None)
@given(st.integers())
def test_a_condition_of_the_zero_space_holds_where_the_key_acts(seed: int) -> None:
    values = sample(ZERO_SPACE, seed)
    inert = inert_keys({k: v for k, v in values.items() if not k.startswith(MODEL_PREFIX)})
    # Listed for a reader only, and what a condition cannot say: at stages 1 and 2 without offload,
    # or at stage 3.
    assert set(inert) <= {f"{ZERO}.allgather_bucket_size", f"{ZERO}.contiguous_gradients"}


# --- values


@pytest.mark.parametrize(
    ("kind", "value", "held"),
    [
        (Choices(values=(1, 2)), 2, True),
        (Choices(values=(1, 2)), True, False),
        (Choices(values=(True, False)), 1, False),
        (IntRange(low=2, high=8, step=3), 5, True),
        (IntRange(low=2, high=8, step=3), 6, False),
        (IntRange(low=0, high=8), True, False),
        (IntRange(low=0, high=8), 9, False),
        (FloatRange(low=0.5, high=2.0), 1, True),
        (FloatRange(low=0.5, high=2.0), 0.4, False),
        (FloatRange(low=0.5, high=2.0), True, False),
    ],
)
def test_a_kind_holds_what_can_be_drawn(kind: Any, value: Scalar, held: bool) -> None:
    assert kind.holds(value) is held


# --- canonical points


@settings(deadline=None)
@given(st.integers())
def test_a_canonical_point_has_no_inert_key(seed: int) -> None:
    proposal = ZERO_SPACE.canonical(sample(ZERO_SPACE, seed))
    assert inert_keys(proposal.ds_values, world_size=2) == {}


@settings(deadline=None)
@given(st.integers())
def test_a_canonical_point_is_its_own_canonical_point(seed: int) -> None:
    proposal = ZERO_SPACE.canonical(sample(ZERO_SPACE, seed))
    again = ZERO_SPACE.canonical(dict(reversed(list(proposal.values.items()))))
    assert list(again.values.items()) == list(proposal.values.items())


@settings(deadline=None)
@given(st.integers(), st.integers())
def test_points_that_differ_in_inert_keys_only_are_one_proposal(seed: int, other: int) -> None:
    values = sample(ZERO_SPACE, seed)
    proposal = ZERO_SPACE.canonical(values)
    rng = random.Random(other)
    changed = {
        parameter.key: draw(parameter, rng)
        for parameter in ZERO_SPACE.parameters
        if parameter.key not in proposal.values
    }
    twin = ZERO_SPACE.canonical({**values, **changed})
    assert twin == proposal
    assert hash(twin) == hash(proposal)
    # Where a key is drawn and then found to be inert, it is inert in the whole config too.
    drawn = values | {key: value for key, value in changed.items() if key in values}
    assert run_of(drawn) == run_of(values)


def run_of(values: dict[str, Scalar]) -> str:
    """Return the identity of the run that a point leads to, its inert keys included."""
    snapped = {
        parameter.key: parameter.snap(values[parameter.key])
        for parameter in ZERO_SPACE.parameters
        if parameter.key in values and not parameter.key.startswith(MODEL_PREFIX)
    }
    return identity(dotted.updated({}, snapped), {}, world_size=2)


@settings(deadline=None)
@given(st.integers(), st.integers())
def test_different_proposals_are_different_runs(seed: int, other: int) -> None:
    left, right = (ZERO_SPACE.canonical(sample(ZERO_SPACE, s)) for s in (seed, other))
    same_run = identity(
        dotted.updated({}, left.ds_values), left.model_settings, world_size=2
    ) == identity(dotted.updated({}, right.ds_values), right.model_settings, world_size=2)
    assert (left == right) == same_run


def test_sizes_are_snapped_to_what_deepspeed_wants() -> None:
    values: dict[str, Scalar] = {f"{ZERO}.stage": 2, f"{ZERO}.reduce_bucket_size": 100_003}
    assert ZERO_SPACE.canonical(values).values[f"{ZERO}.reduce_bucket_size"] == 100_000


@settings(deadline=None)
@given(st.integers())
def test_snapping_stays_in_the_range(seed: int) -> None:
    rng = random.Random(seed)
    for parameter in ZERO_SPACE.parameters:
        assert parameter.kind.holds(parameter.snap(draw(parameter, rng)))


def test_a_value_outside_the_range_is_not_moved_into_it() -> None:
    key = f"{ZERO}.reduce_bucket_size"
    proposal = ZERO_SPACE.canonical({f"{ZERO}.stage": 2, key: 8, "aio.queue_depth": 4})
    assert proposal.values[key] == 8
    assert "aio.queue_depth" in proposal.values


def test_other_names_of_a_key_are_understood() -> None:
    point: dict[str, Scalar] = {f"{ZERO}.stage": 3, f"{ZERO}.prefetch_bucket_size": 50_000}
    assert ZERO_SPACE.canonical(point).values == {
        f"{ZERO}.stage": 3,
        f"{ZERO}.stage3_prefetch_bucket_size": 50_000,
    }


def test_a_key_that_the_base_config_brings_to_life_is_kept(tiny: ModelShape) -> None:
    space = space_of("zero_optimization.prefetch_bucket_size: {choices: [10, 20]}")
    point: dict[str, Scalar] = {f"{ZERO}.stage3_prefetch_bucket_size": 10}
    stage_3 = {ZERO: {"stage": 3}}
    assert space.canonical(point).values == point
    assert space.bind(workload(tiny), stage_3).canonical(point).values == point
    assert space.bind(workload(tiny), {ZERO: {"stage": 2}}).canonical(point).values == {}
    assert space.bind(workload(tiny), {}).canonical(point).values == {}


def test_the_precision_of_the_workload_decides_what_acts(tiny: ModelShape) -> None:
    point: dict[str, Scalar] = {f"{ZERO}.stage": 1, f"{ZERO}.offload_optimizer.device": "none"}
    sized = point | {f"{ZERO}.reduce_bucket_size": 800_000}
    fp32_sums = ZERO_SPACE.bind(workload(tiny, grad_accum_dtype="fp32"), {})
    assert fp32_sums.canonical(sized).values == point
    assert ZERO_SPACE.bind(workload(tiny), {}).canonical(sized).values == sized


# --- binding to a workload


def micro_batches(space: SearchSpace) -> Any:
    kinds = {parameter.key: parameter.kind for parameter in space.parameters}
    return kinds["train_micro_batch_size_per_gpu"]


def test_binding_keeps_the_micro_batches_that_divide(tiny: ModelShape) -> None:
    bound = ZERO_SPACE.bind(workload(tiny, global_batch_size=48))
    assert micro_batches(bound) == Choices(values=(1, 2, 3, 4, 6, 8, 12, 24))
    rest = [p for p in ZERO_SPACE.parameters if p.key != "train_micro_batch_size_per_gpu"]
    assert [p for p in bound.parameters if p.key != "train_micro_batch_size_per_gpu"] == rest


def test_a_range_of_micro_batches_becomes_the_divisors_in_it(tiny: ModelShape) -> None:
    space = space_of("train_micro_batch_size_per_gpu: {low: 2, high: 10}")
    assert micro_batches(space.bind(workload(tiny))) == Choices(values=(2, 4, 8))


def test_no_valid_micro_batch_names_the_nearest(tiny: ModelShape) -> None:
    space = space_of("train_micro_batch_size_per_gpu: {choices: [3, 6]}")
    with pytest.raises(SpaceError, match=r"3, 6 has no divisor of the 32 .*; add 2 or 4$"):
        space.bind(workload(tiny))


# --- JSON


KINDS = st.one_of(
    st.lists(st.one_of(st.booleans(), st.integers(), st.text()), min_size=1).map(
        lambda values: Choices(values=tuple(values))
    ),
    st.builds(IntRange, low=st.integers(1, 5), high=st.integers(5, 9), log=st.booleans()),
    st.builds(FloatRange, low=st.floats(0, 1), high=st.floats(1, 2), log=st.booleans()),
)
PARAMETERS = st.builds(
    Parameter,
    key=st.text(min_size=1),
    kind=KINDS,
    when=st.dictionaries(
        st.text(min_size=1),
        st.lists(st.one_of(st.booleans(), st.integers(), st.text()), min_size=1).map(tuple),
    ),
    multiple_of=st.integers(1, 8),
)


@settings(deadline=None)
@given(st.lists(PARAMETERS))
def test_a_space_survives_json(parameters: list[Parameter]) -> None:
    space = SearchSpace(name="s", parameters=tuple(parameters))
    assert SearchSpace.from_json(json.loads(json.dumps(space.to_json()))) == space


def test_a_bound_space_survives_json(tiny: ModelShape) -> None:
    space = ZERO_SPACE.bind(workload(tiny), {ZERO: {"stage": 2, "offload_param": {}}})
    assert SearchSpace.from_json(json.loads(json.dumps(space.to_json()))) == space
