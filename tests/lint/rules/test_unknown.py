"""Unknown keys: refused, misspelt, misplaced, the program's own, remarks."""

from typing import Any

import pytest

from autotune.lint.finding import Finding, RefusedBy, Severity
from autotune.lint.rules import unknown
from autotune.lint.subject import Subject

ZERO = "zero_optimization"


def reported(config: dict[str, Any], *, form: str = "ds_config") -> list[Finding]:
    subject = Subject(config=config, form=form)
    return [finding for rule in unknown.RULES for finding in rule.findings(subject)]


def only(config: dict[str, Any]) -> Finding:
    [finding] = reported(config)
    return finding


@pytest.mark.parametrize(
    ("config", "field", "suggestion"),
    [
        ({ZERO: {"stage3_param_persitence_threshold": 1}}, None, "persistence_threshold"),
        ({ZERO: {"offload_params": {}}}, None, "write offload_param"),
        ({ZERO: {"aio": {}}}, None, "it belongs at aio"),
        ({ZERO: {"grad_hooks": True}}, None, "remove it"),
        ({ZERO: {"offload_optimizer": {"pin_memry": True}}}, None, "write pin_memory"),
        ({"fp16": {"opt_level": "O2"}}, None, "remove it"),
        ({"bf16": {"loss_scale": 0}}, None, "bf16 needs no loss scaling"),
        ({"bfloat16": {"hysteresis": 2}}, None, "bf16 needs no loss scaling"),
        ({"tensorboard": {"_comment": "x"}}, None, "move the comment to the top level"),
    ],
)
def test_sections_that_are_models_refuse_what_they_do_not_know(
    config: dict[str, Any], field: str | None, suggestion: str
) -> None:
    finding = only(config)
    assert suggestion in (finding.suggestion or "")
    assert (finding.severity, finding.refused_by) == (Severity.ERROR, RefusedBy.PARSE)
    assert field is None or finding.field == field


@pytest.mark.parametrize(
    ("key", "value", "suggestion"),
    [
        # misspelt
        ("gradient_cliping", 1.0, "write gradient_clipping"),
        ("zero_optimisation", {"stage": 3}, "write zero_optimization"),
        ("memory_break_down", False, "write memory_breakdown"),
        ("Optimizer", {"type": "Adam"}, "write optimizer"),
        ("train-batch-size", 8, "write train_batch_size"),
        ("gradient_accumulation", 8, "write gradient_accumulation_steps"),
        ("grad_accum_steps", 8, "write gradient_accumulation_steps"),
        # in the wrong place
        ("offload_optimizer", {"device": "cpu"}, "it belongs at zero_optimization.offload"),
        ("stage", 2, "it belongs at zero_optimization.stage"),
        ("zero_optimization.stage", 2, "nest zero_optimization > stage"),
        # a block about what DeepSpeed does
        ("zero_init", {"enabled": True}, "remove it"),
        ("gradient_communication", {"type": "allreduce"}, "remove it"),
        ("zero", {"stage": 3}, "it looks like zero_optimization"),
    ],
)
def test_a_top_level_key_intended_for_deepspeed_is_an_error(
    key: str, value: object, suggestion: str
) -> None:
    finding = only({key: value})
    assert suggestion in (finding.suggestion or "")
    assert (finding.severity, finding.refused_by) == (Severity.ERROR, RefusedBy.NOTHING)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("min_lr", 1e-6),
        ("cpu_adam", True),
        ("inference_batch_size", 4),
        ("eval_micro_batch_size_per_gpu", 4),
        ("num_epochs", 3),
        ("seed", 42),
        ("enabled", True),
        ("model", {"type": "llama"}),
        ("lora", {"r": 8}),
        ("max_grad_norm", 1.0),
        # Where it belongs it would say what is so in any case.
        ("loss_scale", 0),
        ("hysteresis", 4),
    ],
)
def test_a_key_that_may_be_the_programs_own_is_a_warning(key: str, value: object) -> None:
    assert only({key: value}).severity is Severity.WARNING


def test_what_other_programs_call_a_key_is_translated() -> None:
    finding = only({"grad_clip": 1.0})
    assert finding.severity is Severity.WARNING
    assert finding.suggestion == "if it is meant for DeepSpeed, write gradient_clipping"


@pytest.mark.parametrize("key", ["_comment", "//", "#", "$schema", "comment", "Description"])
def test_a_remark_is_harmless_where_deepspeed_passes_over_it(key: str) -> None:
    assert only({key: "for the big run"}).severity is Severity.NOTE
    assert only({"flops_profiler": {key: "x"}}).severity is Severity.NOTE


@pytest.mark.parametrize(
    ("config", "severity"),
    [
        ({"optimizer": {"type": "Adam", "lr": 1e-4}}, Severity.ERROR),
        ({"optimizer": {"type": "Adam", "params": {}, "lr": 1e-4}}, Severity.ERROR),
        ({"optimizer": {"type": "Adam", "param": {"lr": 1e-4}}}, Severity.ERROR),
        ({"optimizer": {"type": "Adam", "params": {"lr": 1e-4}, "eps": 1e-8}}, Severity.NOTE),
        (
            {"optimizer": {"type": "Adam", "params": {}, "offload_optimizer": {"device": "cpu"}}},
            Severity.ERROR,
        ),
        ({"aio": {"blocksize": 1}}, Severity.ERROR),
        ({"data_types": {"grad_accumulation_dtype": "fp32"}}, Severity.ERROR),
        ({"flops_profiler": {"enable": True}}, Severity.WARNING),
        ({"activation_checkpointing": {"every": 2}}, Severity.NOTE),
    ],
)
def test_sections_that_pass_over_keys_count_by_what_is_lost(
    config: dict[str, Any], severity: Severity
) -> None:
    assert only(config).severity is severity


def test_an_old_name_in_a_plain_section_is_a_note_with_the_new_one() -> None:
    finding = only({"aio": {"thread_count": 4}})
    assert (finding.severity, finding.suggestion) == (Severity.NOTE, "write intra_op_parallelism")


def test_what_stands_in_open_sections_is_not_judged_here() -> None:
    config = {
        "optimizer": {"type": "Adam", "params": {"lr": 1, "anything": 2}},
        "scheduler": {"type": "WarmupLR", "params": {"anything": 2}},
        "pipeline": {"anything": 1},
        "autotuning": {"arg_mappings": {"anything": "--x"}},
    }
    assert reported(config) == []


def test_an_unknown_section_is_reported_once() -> None:
    assert [f.field for f in reported({"lora": {"r": 8, "alpha": 16}})] == ["lora"]


def test_auto_is_dropped_before_anybody_looks_at_its_key() -> None:
    assert only({"bf16": {"loss_scale": "auto"}}).severity is Severity.NOTE
    assert only({"bf16": {"enable": "auto"}}).severity is Severity.WARNING


def test_top_level_keys_of_gpt_neox_are_its_own() -> None:
    assert reported({"num_layers": 24, "hidden_size": 1024}, form="neox") == []


def test_a_misplaced_key_is_an_error_where_it_would_act() -> None:
    misplaced = {"overlap_com": True}
    assert only(misplaced).severity is Severity.WARNING
    finding = only({ZERO: {"stage": 2}, **misplaced})
    assert finding.suggestion == "it belongs at zero_optimization.overlap_comm"
    assert finding.severity is Severity.ERROR


def test_a_misspelling_is_fixed_where_the_right_name_is_free() -> None:
    finding = only({"gradient_cliping": 1.0})
    assert finding.fix is not None
    assert finding.fix.applied({"gradient_cliping": 1.0}) == {"gradient_clipping": 1.0}
    [taken] = reported({"gradient_cliping": 1.0, "gradient_clipping": 0.5})
    assert taken.fix is None


def test_two_names_of_one_field_are_refused_together() -> None:
    names = ("prefetch_bucket_size", "stage3_prefetch_bucket_size")
    finding = only({ZERO: dict.fromkeys(names, 5)})
    assert (finding.rule, finding.field) == ("key-given-twice", f"{ZERO}.prefetch_bucket_size")
    assert finding.fix is not None
    assert only({ZERO: dict(zip(names, (5, 6), strict=True))}).fix is None
    assert reported({ZERO: dict(zip(names, ("auto", 6), strict=True))}) == []
    assert reported({ZERO: {names[0]: 5}}) == []
