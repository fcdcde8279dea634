"""The search space: its files, its conditions, and the one form of each point."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune import dotted
from autotune.ds_config.identity import identity
from autotune.ds_config.inert import inert_keys
from autotune.errors import SpaceError
from autotune.fields.table import default_of, field_of
from autotune.model_shape import ModelShape, load_model_shape
from autotune.proposal import MODEL_PREFIX, Scalar
from autotune.space import (
    Choices,
    FloatRange,
    IntRange,
    Parameter,
    SearchSpace,
    load_space,
    space_names,
)
from autotune.space.reading import read_parameters
from autotune.space.searchable import MODEL_FIELDS, refusal
from autotune.workload import Workload

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
    # Where a key is drawn and then found to be inert, the whole config says so too.
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
    with pytest.raises(SpaceError, match=r"3, 6 holds no divisor of the 32 .*; add 2 or 4$"):
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


# --- files


def space_of(*lines: str) -> SearchSpace:
    text = "parameters:\n" + "".join(f"  {line}\n" for line in lines)
    return SearchSpace(name="mine", parameters=read_parameters(text, source="mine.yaml"))


def faults_of(text: str) -> list[str]:
    with pytest.raises(SpaceError, match=r"mine\.yaml: ") as caught:
        read_parameters(text, source="mine.yaml")
    return [fault.removeprefix("mine.yaml: ") for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (
            f"{ZERO}.reduce_bucket_size: {{low: 8, high: 4}}",
            f"{ZERO}.reduce_bucket_size: low=8 exceeds high=4; swap them",
        ),
        (
            f"{ZERO}.sub_group_size: {{low: 0, high: 4, log: true}}",
            f"{ZERO}.sub_group_size: low=0: must be more than 0 with log; raise it or drop log",
        ),
        (
            f"{ZERO}.reduce_bucket: {{low: 1, high: 4}}",
            f"{ZERO}.reduce_bucket: unknown key; did you mean {ZERO}.reduce_bucket_size or "
            f"{ZERO}.reduce_scatter or {ZERO}.stage3_prefetch_bucket_size? "
            "every known key: python -m autotune.fields.table",
        ),
        (
            "qqqq: {choices: [1]}",
            "qqqq: unknown key; every known key: python -m autotune.fields.table",
        ),
        (
            "model.attention: {choices: [sdpa]}",
            "model.attention: unknown key; the model settings are "
            "model.activation_checkpointing and model.attn_implementation",
        ),
        (
            f"{ZERO}.stage: {{choices: [1], color: red}}",
            f"{ZERO}.stage: color: unknown attribute; known: "
            "choices, low, high, log, step, multiple_of, when",
        ),
        (
            f"{ZERO}.stage: {{choices: []}}",
            f"{ZERO}.stage: choices=[]: must be a list with at least one value",
        ),
        (f"{ZERO}.stage: {{choices: [1, 1]}}", f"{ZERO}.stage: choices: 1: given twice; keep one"),
        (
            f"{ZERO}.stage: {{choices: [1, 4]}}",
            f"{ZERO}.stage: choices: 4: must be one of 0, 1, 2, 3",
        ),
        (
            f"{ZERO}.stage: {{choices: [true]}}",
            f"{ZERO}.stage: choices: true: must be of type int",
        ),
        (
            f"{ZERO}.overlap_comm: {{choices: [null]}}",
            f"{ZERO}.overlap_comm: choices: null: null cannot be searched",
        ),
        (
            f"{ZERO}.stage: {{low: 1, high: 3}}",
            f"{ZERO}.stage: takes 0, 1, 2, 3, not a range; give `choices:`",
        ),
        (
            f"{ZERO}.overlap_comm: {{low: 0, high: 1}}",
            f"{ZERO}.overlap_comm: takes true or false, not a range; give `choices:`",
        ),
        (
            f"{ZERO}.sub_group_size: {{low: few, high: 9}}",
            f"{ZERO}.sub_group_size: low=few: must be of type int",
        ),
        (
            f"{ZERO}.sub_group_size: {{low: -1, high: 9}}",
            f"{ZERO}.sub_group_size: low=-1: must be at least 0",
        ),
        (
            "gradient_predivide_factor: {low: 1.0, high: .inf}",
            "gradient_predivide_factor: high=inf: must be a finite number",
        ),
        (
            f"{ZERO}.sub_group_size: {{low: 1}}",
            f"{ZERO}.sub_group_size: lacks high; give `choices:`, or `low:` and `high:`",
        ),
        (
            f"{ZERO}.sub_group_size: {{choices: [1], high: 4}}",
            f"{ZERO}.sub_group_size: has both choices and high; keep one form",
        ),
        (
            f"{ZERO}.sub_group_size: {{low: 1, high: 4, log: 1}}",
            f"{ZERO}.sub_group_size: log=1: must be true or false",
        ),
        (
            f"{ZERO}.sub_group_size: {{low: 1, high: 4, step: 0}}",
            f"{ZERO}.sub_group_size: step=0: must be a whole number, at least 1",
        ),
        (
            f"{ZERO}.sub_group_size: {{low: 1, high: 4, step: 2, log: true}}",
            f"{ZERO}.sub_group_size: step=2: cannot be combined with log; use multiple_of",
        ),
        (
            "gradient_predivide_factor: {low: 1.0, high: 2.0, step: 2}",
            "gradient_predivide_factor: step=2: for whole numbers only; drop it",
        ),
        (
            f"{ZERO}.sub_group_size: {{low: 1, high: 4, multiple_of: 2}}",
            f"{ZERO}.sub_group_size: 1: not a multiple of 2; nearest: 0",
        ),
        (
            f"{ZERO}.overlap_comm: {{choices: [true], multiple_of: 2}}",
            f"{ZERO}.overlap_comm: multiple_of=2: true is not a size; drop it",
        ),
        (
            f"{ZERO}.overlap_comm: {{choices: [true], when: {{{ZERO}.stage: [1]}}}}",
            f"{ZERO}.overlap_comm: when: {ZERO}.stage: not a key of this space; its keys: "
            f"{ZERO}.overlap_comm",
        ),
        (
            f"{ZERO}.overlap_comm: {{choices: [true], when: 3}}",
            f"{ZERO}.overlap_comm: when=3: must name keys with the values under which this one "
            "acts",
        ),
        (
            f"{ZERO}.overlap_comm: true",
            f"{ZERO}.overlap_comm: true: needs `choices:`, or `low:` and `high:`",
        ),
        (
            "train_batch_size: {choices: [8]}",
            "train_batch_size: cannot be searched: the global batch belongs to the workload; "
            "use --global-batch-size",
        ),
        (
            f"{ZERO}.cpu_offload: {{choices: [true]}}",
            f"{ZERO}.cpu_offload: cannot be searched: deprecated; use {ZERO}.offload_optimizer",
        ),
        (
            f"{ZERO}.offload_param: {{choices: [cpu]}}",
            f"{ZERO}.offload_param: cannot be searched: a section, not a key; name a key in it, "
            f"such as {ZERO}.offload_param.buffer_count",
        ),
    ],
)
def test_a_fault_says_where_what_and_the_way_out(line: str, fault: str) -> None:
    assert faults_of(f"parameters:\n  {line}\n") == [fault]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "the file is empty; it needs `parameters:` with keys below"),
        ("# nothing\n", "the file is empty; it needs `parameters:` with keys below"),
        ("- 1\n", "holds a list; it needs `parameters:` with keys below"),
        (
            "parameters: {}\n",
            f"parameters: names no key to search; add one, such as {ZERO}.stage",
        ),
        (
            f"parameters: {{{ZERO}.stage: {{choices: [1]}}}}\nextra: 1\n",
            "extra: unknown at the top of the file; known: description, parameters",
        ),
        (
            f"parameters:\n  {ZERO}.stage: {{choices: [1]}}\n  {ZERO}.stage: {{choices: [2]}}\n",
            f"line 3: {ZERO}.stage: given twice; keep one of them",
        ),
        (
            f"parameters:\n  {ZERO}.stage: {{choices: [1], choices: [2]}}\n",
            "line 2: choices: given twice; keep one of them",
        ),
        (
            f"parameters:\n  {ZERO}.prefetch_bucket_size: {{choices: [1]}}\n"
            f"  {ZERO}.stage3_prefetch_bucket_size: {{choices: [2]}}\n",
            f"{ZERO}.stage3_prefetch_bucket_size: another name of {ZERO}.prefetch_bucket_size; "
            "keep one of them",
        ),
        (
            f"parameters:\n  {ZERO}.stage: {{choices: [1, 2]}}\n"
            f"  {ZERO}.overlap_comm: {{choices: [true], when: {{{ZERO}.stage: [2, 3]}}}}\n",
            f"{ZERO}.overlap_comm: when: {ZERO}.stage=3: it never has this value; it takes 1, 2",
        ),
        (
            f"parameters:\n"
            f"  {ZERO}.stage: {{choices: [1], when: {{{ZERO}.overlap_comm: [true]}}}}\n"
            f"  {ZERO}.overlap_comm: {{choices: [true], when: {{{ZERO}.stage: [1]}}}}\n",
            f"{ZERO}.stage: when: {ZERO}.stage -> {ZERO}.overlap_comm -> {ZERO}.stage: "
            "runs in a circle; drop one condition",
        ),
    ],
)
def test_a_fault_of_the_whole_file_is_said_once(text: str, fault: str) -> None:
    assert faults_of(text) == [fault]


def test_what_is_not_yaml_is_said_with_its_place() -> None:
    (fault,) = faults_of("parameters: [1\nb: {")
    assert fault.startswith("line 2, column 2: not YAML: ")


def test_all_faults_of_a_file_are_reported_at_once() -> None:
    faults = faults_of(
        "parameters:\n"
        f"  {ZERO}.stag: {{choices: []}}\n"
        f"  {ZERO}.sub_group_size: {{low: 4, high: -1, log: no, colour: red, when: {{x: 1}}}}\n"
        "  optimizer.params.lr: {low: 1, high: 2}\n"
    )
    assert len(faults) == 6


def test_numbers_may_be_written_as_engineers_write_them() -> None:
    (parameter,) = space_of(f"{ZERO}.reduce_bucket_size: {{low: 1e6, high: 5e8}}").parameters
    assert parameter.kind == IntRange(low=1_000_000, high=500_000_000)


def test_a_float_key_takes_a_range_of_floats() -> None:
    (parameter,) = space_of("gradient_predivide_factor: {low: 1, high: 4}").parameters
    assert parameter.kind == FloatRange(low=1.0, high=4.0)


def test_any_dotted_key_of_deepspeed_may_be_searched() -> None:
    space = space_of(
        f"{ZERO}.round_robin_gradients: {{choices: [true, false]}}",
        "communication_data_type: {choices: [fp32, bf16]}",
        "compile.deepcompile: {choices: [true, false]}",
        "model.attn_implementation: {choices: [sdpa, eager]}",
    )
    assert len(space.parameters) == 4


def test_a_key_stands_after_the_keys_of_its_condition() -> None:
    space = space_of(
        f"{ZERO}.sub_group_size: {{choices: [1], when: {{{ZERO}.stage: 3}}}}",
        f"{ZERO}.stage: {{choices: [2, 3]}}",
    )
    assert [parameter.key for parameter in space.parameters] == [
        f"{ZERO}.stage",
        f"{ZERO}.sub_group_size",
    ]
    assert not space.parameters[1].acts({f"{ZERO}.stage": 2})
    assert space.parameters[1].acts({f"{ZERO}.stage": 3})
    assert not space.parameters[1].acts({})


@pytest.mark.parametrize(
    "key",
    [
        "train_batch_size", "gradient_accumulation_steps", "bf16.enabled", "bfloat16.enabled",
        "fp16.loss_scale", "optimizer.type", "optimizer.params.lr", "scheduler.type",
        "gradient_clipping", "data_types.grad_accum_dtype", "tensor_parallel.autotp_size",
        "activation_checkpointing.cpu_checkpointing", "wandb.enabled", "elasticity",
    ],
)  # fmt: skip
def test_what_belongs_to_the_workload_cannot_be_searched(key: str) -> None:
    field = field_of(key)
    assert field is not None
    assert refusal(field)


def test_a_space_is_loaded_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(f"parameters:\n  {ZERO}.stage: {{choices: [1]}}\n")
    assert load_space(str(path)).name == "own"


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match=r"'nil': neither .* nor a YAML file; known: .*zero"):
        load_space("nil")
    with pytest.raises(SpaceError, match=r"gone\.yaml: not readable: No such file"):
        load_space(str(tmp_path / "gone.yaml"))
