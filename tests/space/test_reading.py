"""Search space files: what they may contain, and how their faults are reported."""

from pathlib import Path

import pytest

from autotune.ds_config.fields.table import field_of
from autotune.errors import SpaceError
from autotune.space import (
    FloatRange,
    IntRange,
    load_space,
)
from autotune.space.reading import read_parameters
from autotune.space.searchable import refusal
from tests.space.written import space_of

ZERO = "zero_optimization"


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
            f"{ZERO}.sub_group_size: low=0: must be more than 0 with log; raise it or remove log",
        ),
        (
            f"{ZERO}.reduce_bucket: {{low: 1, high: 4}}",
            f"{ZERO}.reduce_bucket: unknown key; did you mean {ZERO}.reduce_bucket_size or "
            f"{ZERO}.reduce_scatter or {ZERO}.stage3_prefetch_bucket_size? "
            "every known key: python -m autotune.ds_config.fields.table",
        ),
        (
            "qqqq: {choices: [1]}",
            "qqqq: unknown key; every known key: python -m autotune.ds_config.fields.table",
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
            "gradient_predivide_factor: step=2: for whole numbers only; remove it",
        ),
        (
            f"{ZERO}.sub_group_size: {{low: 1, high: 4, multiple_of: 2}}",
            f"{ZERO}.sub_group_size: 1: not a multiple of 2; nearest: 0",
        ),
        (
            f"{ZERO}.overlap_comm: {{choices: [true], multiple_of: 2}}",
            f"{ZERO}.overlap_comm: multiple_of=2: true is not a size; remove it",
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
def test_a_fault_has_place_value_rule_and_suggestion(line: str, fault: str) -> None:
    assert faults_of(f"parameters:\n  {line}\n") == [fault]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "the file is empty; it needs `parameters:` with keys below"),
        ("# nothing\n", "the file is empty; it needs `parameters:` with keys below"),
        ("- 1\n", "contains a list; it needs `parameters:` with keys below"),
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
            f"{ZERO}.overlap_comm: when: {ZERO}.stage=3: not one of its values; it takes 1, 2",
        ),
        (
            f"parameters:\n"
            f"  {ZERO}.stage: {{choices: [1], when: {{{ZERO}.overlap_comm: [true]}}}}\n"
            f"  {ZERO}.overlap_comm: {{choices: [true], when: {{{ZERO}.stage: [1]}}}}\n",
            f"{ZERO}.stage: when: {ZERO}.stage -> {ZERO}.overlap_comm -> {ZERO}.stage: "
            "a cycle; remove one condition",
        ),
    ],
)
def test_a_fault_of_the_whole_file_is_reported_once(text: str, fault: str) -> None:
    assert faults_of(text) == [fault]


def test_a_text_that_is_not_yaml_is_reported_with_its_place() -> None:
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
