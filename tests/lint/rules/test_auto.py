from typing import Any

import pytest

from autotune import dotted
from autotune.job.launcher import Launcher
from autotune.lint.finding import Finding, RefusedBy, Severity
from autotune.lint.rules.auto import auto_outside_hf, auto_unfilled
from autotune.lint.subject import Launch, Subject


def _found(*keys: str, launcher: Launcher, **others: Any) -> list[Finding]:
    config = dotted.updated(others, dict.fromkeys(keys, "auto"))
    subject = Subject(config=config, launch=Launch(launcher=launcher))
    return [f for rule in (auto_outside_hf, auto_unfilled) for f in rule.findings(subject)]


@pytest.mark.parametrize(
    ("key", "refused_by"),
    [
        ("train_batch_size", RefusedBy.PARSE),
        ("train_micro_batch_size_per_gpu", RefusedBy.PARSE),
        ("gradient_accumulation_steps", RefusedBy.PARSE),
        ("communication_data_type", RefusedBy.PARSE),
        ("gradient_clipping", RefusedBy.INIT),
        ("steps_per_print", RefusedBy.INIT),
        ("optimizer.params.lr", RefusedBy.INIT),
        ("optimizer.params.betas", RefusedBy.INIT),
        ("scheduler.params.warmup_num_steps", RefusedBy.INIT),
        ("fp16.enabled", RefusedBy.NOTHING),
        ("bf16.enabled", RefusedBy.NOTHING),
    ],
)
def test_deepspeed_resolves_no_auto(key: str, refused_by: RefusedBy) -> None:
    [found] = _found(key, launcher=Launcher.DEEPSPEED)
    assert (found.field, found.severity) == (key, Severity.ERROR)
    assert found.refused_by is refused_by
    assert "--launcher hf" in str(found.suggestion)


def test_keys_that_deepspeed_drops_are_one_finding_for_a_section() -> None:
    [found] = _found(
        "zero_optimization.reduce_bucket_size",
        "zero_optimization.stage3_prefetch_bucket_size",
        launcher=Launcher.DEEPSPEED,
        zero_optimization={"stage": 3},
    )
    assert found.field == "zero_optimization.reduce_bucket_size"
    assert "takes 500000000" in found.message
    assert "likewise zero_optimization.stage3_prefetch_bucket_size" in found.message


@pytest.mark.parametrize(
    "key",
    [
        "zero_optimization.stage3_prefetch_bucket_size",  # acts at stage 3 only
        "data_types.keep_in_fp32_modules",
        "pipeline.stages",
        "wandb.project",
        "no_such_key",
        "_comment",
    ],
)
def test_an_auto_that_deepspeed_accepts_or_ignores_is_not_reported(key: str) -> None:
    assert _found(key, launcher=Launcher.DEEPSPEED, zero_optimization={"stage": 2}) == []


def test_the_autotuner_takes_auto() -> None:
    tuned = {"enabled": True}
    assert _found("train_batch_size", launcher=Launcher.DEEPSPEED, autotuning=tuned) == []


def test_hugging_face_fills_the_usual_keys() -> None:
    keys = (
        "train_batch_size",
        "gradient_clipping",
        "optimizer.params.betas",
        "scheduler.params.total_num_steps",
        "fp16.enabled",
        "bf16.enabled",
        "zero_optimization.reduce_bucket_size",
        "zero_optimization.stage3_param_persistence_threshold",
    )
    assert _found(*keys, launcher=Launcher.HF) == []


@pytest.mark.parametrize(
    ("key", "severity", "suggestion"),
    [
        ("zero_optimization.overlap_comm", Severity.ERROR, "give a value, or leave it out"),
        ("optimizer.params.momentum", Severity.ERROR, "give a value, or leave it out"),
        (
            "zero_optimization.prefetch_bucket_size",
            Severity.ERROR,
            "write it as zero_optimization.stage3_prefetch_bucket_size",
        ),
        ("bfloat16.enabled", Severity.WARNING, "write it as bf16.enabled"),
    ],
)
def test_hugging_face_fills_no_other_key(key: str, severity: Severity, suggestion: str) -> None:
    [found] = _found(key, launcher=Launcher.HF)
    assert (found.field, found.severity, found.suggestion) == (key, severity, suggestion)
    assert found.refused_by is RefusedBy.LAUNCHER
