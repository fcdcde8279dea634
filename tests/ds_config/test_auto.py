"""What Hugging Face puts in place of "auto", asked of Hugging Face itself."""

import copy
from types import SimpleNamespace
from typing import Any

import pytest

from autotune import dotted
from autotune.ds_config.auto import auto_buckets, resolve_auto
from tests.search.setting import tiny_workload

AUTO: dict[str, Any] = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "bf16": {"enabled": "auto"},
    "fp16": {"enabled": "auto"},
    "optimizer": {
        "type": "AdamW",
        "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"},
    },
    "scheduler": {
        "type": "WarmupDecayLR",
        "params": {
            "warmup_min_lr": "auto",
            "warmup_max_lr": "auto",
            "warmup_num_steps": "auto",
            "total_num_steps": "auto",
        },
    },
    "zero_optimization": {
        "stage": 3,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto",
        "stage3_gather_16bit_weights_on_model_save": "auto",
    },
}


def test_no_auto_is_left_and_nothing_else_is_touched() -> None:
    resolved = dotted.flatten(resolve_auto(AUTO, tiny_workload()))
    assert "auto" not in resolved.values()
    for key, value in dotted.flatten(AUTO).items():
        if value != "auto":
            assert resolved[key] == value


@pytest.mark.parametrize("hidden_size", [128, 768, 4096, 8192])
def test_the_bucket_sizes_are_those_of_hugging_face(hidden_size: int) -> None:
    from transformers.integrations.deepspeed import HfTrainerDeepSpeedConfig

    theirs: dict[str, Any] = {}

    class Formulas(HfTrainerDeepSpeedConfig):  # type: ignore[misc]
        """The real formulas; only the parent's book-keeping, which needs accelerate, is ours."""

        mismatches: tuple[str, ...] = ()

        def __init__(self) -> None:
            pass

        def is_auto(self, key: str) -> bool:
            return True

        def is_zero3(self) -> bool:
            return True

        def fill_only(self, key: str, value: object) -> None:
            theirs[key] = value

        def fill_match(self, *_: object, **__: object) -> None:
            pass

    model = SimpleNamespace(config=SimpleNamespace(hidden_size=hidden_size))
    arguments = SimpleNamespace(
        learning_rate=1e-4, max_grad_norm=1.0, get_warmup_steps=lambda num_steps: 0
    )
    Formulas().trainer_config_finalize(arguments, model, num_training_steps=10)
    ours = auto_buckets(hidden_size)
    assert {key: value for key, value in theirs.items() if key in ours} == ours


def test_no_warm_up_is_the_one_step_that_deepspeed_accepts() -> None:
    resolved = resolve_auto(AUTO, tiny_workload())
    assert resolved["scheduler"]["params"]["warmup_num_steps"] == 1


def test_an_unknown_auto_gets_deepspeeds_default() -> None:
    resolved = resolve_auto({"zero_optimization": {"stage": 1, "mystery": "auto"}}, tiny_workload())
    assert resolved == {"zero_optimization": {"stage": 1}}


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32"])
def test_the_precision_switches_follow_the_workload(precision: str) -> None:
    resolved = resolve_auto(AUTO, tiny_workload(precision=precision))
    assert resolved["bf16"]["enabled"] == (precision == "bf16")
    assert resolved["fp16"]["enabled"] == (precision == "fp16")


def test_the_config_itself_is_never_changed() -> None:
    before = copy.deepcopy(AUTO)
    resolve_auto(AUTO, tiny_workload())
    assert before == AUTO
