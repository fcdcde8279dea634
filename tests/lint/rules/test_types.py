"""Types and limits: what is refused, what is converted, what is kept and fails later."""

import json
from typing import Any

import pytest

from autotune.job.launcher import Launcher
from autotune.lint.check import lint
from autotune.lint.finding import Finding, RefusedBy, Severity
from autotune.lint.rules import types
from autotune.lint.subject import Launch, Subject

ZERO = "zero_optimization"


def reported(config: dict[str, Any], *, launcher: Launcher = Launcher.DEEPSPEED) -> list[Finding]:
    subject = Subject(config=config, launch=Launch(launcher=launcher))
    return [finding for rule in types.RULES for finding in rule.findings(subject)]


def only(config: dict[str, Any]) -> Finding:
    [finding] = reported(config)
    return finding


@pytest.mark.parametrize(
    ("config", "message", "fixed"),
    [
        ({ZERO: {"reduce_bucket_size": "5e8"}}, "must be an integer, not a string", 500_000_000),
        ({ZERO: {"sub_group_size": 0.5}}, "must be an integer, not a number with a fraction", None),
        ({ZERO: {"sub_group_size": 1e19}}, "must be an integer, not a float too large", None),
        ({ZERO: {"offload_optimizer": True}}, "must be a section, not a boolean", None),
        ({ZERO: {"overlap_comm": "maybe"}}, "must be true or false, not a string", None),
        ({ZERO: 2}, "must be a section, not a number", None),
        ({ZERO: [{"stage": 2}]}, "must be a section, not a list", None),
        ({ZERO: {"offload_param": "nvme"}}, "must be a section, not a string", {"device": "nvme"}),
        ({"bf16": True}, "must be a section, not a boolean", {"enabled": True}),
        ({"fp16": None}, "must be a section, not null", None),
        ({"fp16": {"loss_scale": True}}, "must be a number, not a boolean", None),
        ({"optimizer": "AdamW"}, "must be a section, not a string", None),
        ({"gradient_accumulation_steps": "8"}, "must be an integer, not a string", 8),
        ({"wall_clock_breakdown": "true"}, "must be true or false, not a string", True),
        ({"tensorboard": {"job_name": 7}}, "must be a string, not a number", None),
        ({"comms_logger": {"prof_ops": "all_reduce"}}, "must be a list, not a string", None),
        ({"data_types": {"keep_in_fp32_modules": [1]}}, "must be a list of strings", None),
        ({"autotuning": {"exps_dir": ""}}, "must be a string, not an empty string", None),
        ({"tensor_parallel": {"dtype": "bf16"}}, "must be left out", None),
    ],
)
def test_what_the_parser_refuses_is_an_error(
    config: dict[str, Any], message: str, fixed: object
) -> None:
    finding = only(config)
    assert message in finding.message
    assert (finding.severity, finding.refused_by) == (Severity.ERROR, RefusedBy.PARSE)
    assert (finding.fix.put[finding.field] if finding.fix else None) == fixed


@pytest.mark.parametrize(
    ("config", "taken"),
    [
        ({ZERO: {"overlap_comm": "True"}}, True),
        ({ZERO: {"contiguous_gradients": "off"}}, False),
        ({ZERO: {"reduce_bucket_size": "5_000"}}, 5000),
        ({ZERO: {"stage": "2"}}, 2),
        ({ZERO: {"stage": True}}, 1),
        ({"fp16": {"loss_scale": "128"}}, 128),
    ],
)
def test_a_value_that_pydantic_converts_is_a_warning_with_a_fix(
    config: dict[str, Any], taken: object
) -> None:
    finding = only(config)
    assert finding.severity is Severity.WARNING
    assert f"DeepSpeed reads it as {json.dumps(taken)}" in finding.message
    assert finding.fix is not None
    assert finding.fix.put == {finding.field: taken}


@pytest.mark.parametrize(
    ("config", "severity", "refused_by", "fixed"),
    [
        # A string that is not empty is true.
        ({"prescale_gradients": "false"}, Severity.ERROR, RefusedBy.NOTHING, False),
        ({"prescale_gradients": "true"}, Severity.WARNING, RefusedBy.NOTHING, True),
        ({"gradient_clipping": "1.0"}, Severity.ERROR, RefusedBy.INIT, 1),
        ({"gradient_clipping": None}, Severity.ERROR, RefusedBy.INIT, None),
        ({"steps_per_print": "x"}, Severity.ERROR, RefusedBy.INIT, None),
        ({"gradient_accumulation_steps": 1.5}, Severity.ERROR, RefusedBy.INIT, None),
        ({"gradient_clipping": True}, Severity.WARNING, RefusedBy.NOTHING, None),
        ({"steps_per_print": True}, Severity.WARNING, RefusedBy.NOTHING, None),
        # Nothing reads it: the profiler is off.
        ({"flops_profiler": {"profile_step": "5"}}, Severity.WARNING, RefusedBy.INIT, 5),
        ({"timers": []}, Severity.WARNING, RefusedBy.NOTHING, None),
    ],
)
def test_a_value_kept_unchanged_is_judged_by_its_effect(
    config: dict[str, Any], severity: Severity, refused_by: RefusedBy, fixed: object
) -> None:
    finding = only(config)
    assert (finding.severity, finding.refused_by) == (severity, refused_by)
    assert (finding.fix.put[finding.field] if finding.fix else None) == fixed


@pytest.mark.parametrize(
    ("config", "message", "refused_by"),
    [
        ({ZERO: {"stage": 5}}, "must be one of 0, 1, 2, 3", RefusedBy.PARSE),
        ({ZERO: {"stage": [2, 3]}}, "must be one of 0, 1, 2, 3", RefusedBy.PARSE),
        ({ZERO: {"stage": 1.5}}, "must be one of 0, 1, 2, 3", RefusedBy.PARSE),
        ({ZERO: {"stage": "ZERO_STAGE"}}, "must be one of 0, 1, 2, 3", RefusedBy.PARSE),
        ({ZERO: {"reduce_bucket_size": 0}}, "must be more than 0", RefusedBy.PARSE),
        ({ZERO: {"reduce_bucket_size": "-5"}}, "must be more than 0", RefusedBy.PARSE),
        ({ZERO: {"offload_param": {"device": "CPU"}}}, "must be one of none", RefusedBy.PARSE),
        ({ZERO: {"offload_optimizer": {"ratio": 2}}}, "must be at most 1.0", RefusedBy.PARSE),
        ({"communication_data_type": 16}, "must be one of fp16, bf16, fp32", RefusedBy.PARSE),
        ({"torch_autocast": {"dtype": None}}, "must be one of torch.float16", RefusedBy.PARSE),
        ({"compile": {"passes": ["z9"]}}, "must hold only z1, z3", RefusedBy.PARSE),
        ({"data_types": {"grad_accum_dtype": "fp64"}}, "must be one of torch.f", RefusedBy.INIT),
    ],
)
def test_limits_are_held(config: dict[str, Any], message: str, refused_by: RefusedBy) -> None:
    finding = only(config)
    assert message in finding.message
    assert (finding.rule, finding.severity, finding.refused_by) == (
        "limit",
        Severity.ERROR,
        refused_by,
    )


@pytest.mark.parametrize(
    "config",
    [
        {ZERO: {"stage": 3.0, "reduce_bucket_size": 5e8, "stage3_max_live_parameters": 1e9}},
        {ZERO: {"overlap_comm": 1, "contiguous_gradients": 0}},
        {ZERO: {"overlap_comm": None, "offload_param": None}, "bf16": None, "aio": None},
        {ZERO: {"leaf_module": {"classes": "MoeBlock"}}},
        {ZERO: True},
        {"train_batch_size": None, "train_micro_batch_size_per_gpu": 1},
        {"communication_data_type": None, "optimizer": {"type": "Adam", "params": None}},
        {"communication_data_type": "FP16", "gradient_clipping": 1, "steps_per_print": 2e3},
        {"datastates_ckpt": False, "vocabulary_size": 50304.0},
        # Without a type the params are not read.
        {"optimizer": {"params": 0}},
    ],
)
def test_a_value_that_deepspeed_reads_as_intended_is_not_reported(config: dict[str, Any]) -> None:
    assert reported(config) == []


def test_auto_is_left_to_its_own_rules() -> None:
    config = {ZERO: {"stage": "auto", "reduce_bucket_size": "auto"}, "train_batch_size": "auto"}
    assert reported(config) == []
    assert reported(config, launcher=Launcher.HF) == []


def test_a_choice_in_other_letters_is_suggested() -> None:
    finding = only({ZERO: {"offload_optimizer": {"device": "CPU"}}})
    assert finding.suggestion == 'write "cpu"'


def test_a_fixed_config_is_clean() -> None:
    config = {
        "train_micro_batch_size_per_gpu": "4",
        "prescale_gradients": "false",
        ZERO: {"stage": "2", "reduce_bucket_size": "5e8", "overlap_comm": "true"},
    }
    for finding in reported(config):
        assert finding.fix is not None
        config = finding.fix.applied(config)
    assert config == {
        "train_micro_batch_size_per_gpu": 4,
        "prescale_gradients": False,
        ZERO: {"stage": 2, "reduce_bucket_size": 500_000_000, "overlap_comm": True},
    }
    assert [f for f in lint(Subject(config=config)) if f.severity is Severity.ERROR] == []
