from types import SimpleNamespace
from typing import Any

import pytest
from transformers import TrainingArguments as RealTrainingArguments
from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

from autotune import dotted
from autotune.job.launcher import Launcher
from autotune.lint.finding import Finding, Severity
from autotune.lint.rules.hf_arguments import hf_ignored, hf_mismatch, hf_unsupported
from autotune.lint.subject import Launch, Subject
from autotune.lint.training_arguments import TrainingArguments

_ZERO = {"zero_optimization": {"stage": 2}}
_COMPARED = (
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "train_batch_size",
    "gradient_clipping",
    "optimizer.params.lr",
    "optimizer.params.betas",
    "optimizer.params.eps",
    "optimizer.params.weight_decay",
    "scheduler.params.warmup_max_lr",
    "fp16.enabled",
    "bf16.enabled",
    "scheduler.params.total_num_steps",
    "scheduler.params.warmup_num_steps",
)
_GIVEN: dict[str, Any] = {
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 8,
    "learning_rate": 5e-5,
    "warmup_steps": 0.1,
    "max_steps": 260,
    "bf16": True,
}


def _mismatches(config: dict[str, Any], arguments: Any, **others: Any) -> list[Finding]:
    launch = Launch(launcher=Launcher.HF, hf_args=arguments, gpus=8)
    return list(hf_mismatch.findings(Subject(config=_ZERO | config, launch=launch, **others)))


def _real(given: dict[str, Any], *, ranks: int) -> SimpleNamespace:
    """Return transformers' own arguments with their defaults, without a device to look at."""
    defaults = {
        name: field.default for name, field in RealTrainingArguments.__dataclass_fields__.items()
    }
    real = SimpleNamespace(**defaults | {"world_size": ranks} | given)
    real.get_warmup_steps = lambda steps: RealTrainingArguments.get_warmup_steps(real, steps)
    return real


@pytest.mark.parametrize("given", [{"max_steps": 10}, _GIVEN])
def test_transformers_itself_fills_in_what_is_expected_of_a_config(given: dict[str, Any]) -> None:
    real = _real(given, ranks=8)
    filled = HfTrainerDeepSpeedConfig(dotted.updated(_ZERO, dict.fromkeys(_COMPARED, "auto")))
    filled.trainer_config_process(real)
    filled.trainer_config_finalize(real, model=None, num_training_steps=given["max_steps"])
    known = TrainingArguments(given | {"output_dir": "out"}, ranks=8)
    assert {expected.key: expected.value for expected in known.expected()} == {
        key: dotted.get(filled.config, key) for key in _COMPARED
    }


def test_each_difference_is_reported_with_both_values() -> None:
    config = {
        "train_batch_size": 8,
        "optimizer": {"params": {"lr": 1e-4}},
        "scheduler": {"params": {"warmup_num_steps": 500, "total_num_steps": "auto"}},
    }
    reported = {found.field: found.message for found in _mismatches(config, _GIVEN)}
    assert reported == {
        "optimizer.params.lr": "optimizer.params.lr=0.0001 in the ds_config, but "
        "learning_rate=5e-05 in TrainingArguments: the Trainer refuses the pair",
        "train_batch_size": "train_batch_size=8 in the ds_config, but per_device_train_batch_size "
        "x gradient_accumulation_steps x ranks=128 in TrainingArguments: the Trainer refuses the "
        "pair",
        "scheduler.params.warmup_num_steps": "scheduler.params.warmup_num_steps=500 in the "
        "ds_config, but max(1, warmup_steps)=26 in TrainingArguments: the Trainer refuses the pair",
    }


def test_a_string_is_not_the_number_in_it() -> None:
    [found] = _mismatches({"gradient_accumulation_steps": "8"}, _GIVEN)
    assert found.message.startswith('gradient_accumulation_steps="8" in the ds_config, but ')


def test_arguments_that_are_not_set_are_not_compared() -> None:
    config = {"gradient_clipping": 0.5, "fp16": {"enabled": True}}
    assert _mismatches(config, {"learning_rate": 1e-4}) == []
    complete = _mismatches(config, {"learning_rate": 1e-4, "output_dir": "out"})
    assert [found.field for found in complete] == ["gradient_clipping", "fp16.enabled"]


@pytest.mark.parametrize(
    ("config", "arguments", "fields"),
    [
        ({"bf16": {"enabled": True}}, {"fp16": True}, ["bf16.enabled"]),
        ({"fp16": {"enabled": True}}, {"bf16_full_eval": True}, ["fp16.enabled"]),
        ({"fp16": {"enabled": True}}, {"fp16": True}, []),
        (
            {"train_batch_size": 64, "gradient_accumulation_steps": 2},
            {"per_device_train_batch_size": 2},
            ["train_batch_size"],
        ),
        ({"train_batch_size": 64}, {"per_device_train_batch_size": 2}, []),
    ],
)
def test_what_incomplete_arguments_imply_is_compared(
    config: dict[str, Any], arguments: dict[str, Any], fields: list[str]
) -> None:
    assert [found.field for found in _mismatches(config, arguments)] == fields


def test_an_accumulation_left_out_is_one_for_accelerate() -> None:
    config = {"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"}
    [found] = _mismatches(config, _GIVEN)
    assert (found.field, found.severity) == ("gradient_accumulation_steps", Severity.ERROR)
    assert _mismatches(config | {"gradient_accumulation_steps": "auto"}, _GIVEN) == []


def test_the_precision_of_an_accelerate_yaml_is_overridden() -> None:
    config = {"fp16": {"enabled": True}, "gradient_accumulation_steps": 8}
    [found] = _mismatches(config, _GIVEN | {"fp16": False}, form="accelerate")
    assert (found.field, found.severity) == ("fp16.enabled", Severity.WARNING)


@pytest.mark.parametrize("arguments", [{"learning_rate": "x", "warmup_steps": [1]}, {}])
def test_odd_arguments_are_not_compared(arguments: dict[str, Any]) -> None:
    assert _mismatches({"optimizer": {"params": {"lr": 1}}}, arguments) == []


def _unheard(config: dict[str, Any], arguments: dict[str, Any]) -> list[str]:
    launch = Launch(launcher=Launcher.HF, hf_args=arguments)
    return [f.field for f in hf_ignored.findings(Subject(config=_ZERO | config, launch=launch))]


@pytest.mark.parametrize(
    ("config", "arguments", "fields"),
    [
        ({"optimizer": {"type": "AdamW"}}, {"learning_rate": 1e-5}, ["optimizer.params.lr"]),
        ({"optimizer": {"params": {"lr": "auto"}}}, {"learning_rate": 1e-5}, []),
        ({}, {"learning_rate": 1e-5, "optim": "adafactor"}, []),
        ({"scheduler": {}}, {"warmup_steps": 100}, ["scheduler.params.warmup_num_steps"]),
        ({"scheduler": {}}, {"warmup_steps": 0}, []),
        ({}, {"max_grad_norm": 0.5}, ["gradient_clipping"]),
        ({}, {"max_grad_norm": 1.0}, []),
        ({"gradient_clipping": "auto"}, {"max_grad_norm": 0.5}, []),
        ({"optimizer": {"type": "AdamW"}}, {"optim": "adafactor"}, ["optimizer.type"]),
        ({"optimizer": {"type": "Adam"}}, {"optim": "adamw_torch"}, []),
        ({"optimizer": {"type": "Lion"}}, {"optim": "lion_32bit"}, []),
        ({"scheduler": {"type": "WarmupLR"}}, {"lr_scheduler_type": "cosine"}, ["scheduler.type"]),
        ({"scheduler": {"type": "WarmupLR"}}, {"lr_scheduler_type": "linear"}, []),
        ({"scheduler": {"type": "WarmupCosineLR"}}, {"lr_scheduler_type": "cosine"}, []),
    ],
)
def test_an_argument_without_effect_is_reported(
    config: dict[str, Any], arguments: dict[str, Any], fields: list[str]
) -> None:
    assert _unheard(config, arguments) == fields


@pytest.mark.parametrize(
    ("stage", "arguments", "fields"),
    [
        (3, {"auto_find_batch_size": True}, ["zero_optimization.stage"]),
        (2, {"auto_find_batch_size": True}, []),
        (3, {"auto_find_batch_size": False, "save_only_model": True}, []),
        (2, {"save_only_model": True, "load_best_model_at_end": True}, [""]),
    ],
)
def test_an_argument_that_the_trainer_refuses_with_deepspeed_is_an_error(
    stage: int, arguments: dict[str, Any], fields: list[str]
) -> None:
    launch = Launch(launcher=Launcher.HF, hf_args=arguments)
    subject = Subject(config={"zero_optimization": {"stage": stage}}, launch=launch)
    assert [found.field for found in hf_unsupported.findings(subject)] == fields
