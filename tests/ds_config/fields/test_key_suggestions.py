"""What an unknown key was meant to be."""

import pytest

from autotune.ds_config.fields.key_suggestions import homes, misspelt, names_in, section_like
from autotune.ds_config.fields.table import known_fields

ZERO = "zero_optimization"


@pytest.mark.parametrize(
    ("section", "key", "right"),
    [
        ("", "gradient_cliping", "gradient_clipping"),
        ("", "train_batchsize", "train_batch_size"),
        ("", "gradient-accumulation-steps", "gradient_accumulation_steps"),
        ("", "steps_per_prints", "steps_per_print"),
        ("", "zero_optimisation", ZERO),
        ("", "BF16", "bf16"),
        (ZERO, "stage3_prefetch_bucket", "stage3_prefetch_bucket_size"),
        (ZERO, "max_live_paramters", "max_live_parameters"),
        (f"{ZERO}.offload_optimizer", "dvice", "device"),
        ("bfloat16", "enable", "enabled"),
    ],
)
def test_a_slip_of_the_pen_is_seen(section: str, key: str, right: str) -> None:
    assert misspelt(section, key) == right


@pytest.mark.parametrize(
    "key",
    ["eval_batch_size", "inference_batch_size", "min_lr", "max_grad_norm", "model", "lr", ""],
)
def test_another_word_is_not_a_misspelling(key: str) -> None:
    assert misspelt("", key) is None


@pytest.mark.parametrize("key", known_fields())
def test_a_known_name_is_its_own_spelling(key: str) -> None:
    section, _, leaf = key.rpartition(".")
    if known_fields()[key].removed:
        assert leaf not in names_in(section)
    else:
        assert misspelt(section, leaf) == leaf


def test_a_key_is_found_where_it_belongs() -> None:
    assert homes("aio") == ("aio",)
    assert homes("offload_optimiser") == (f"{ZERO}.offload_optimizer",)
    assert homes("prefetch_bucket_size") == (f"{ZERO}.stage3_prefetch_bucket_size",)
    assert homes("enabled") == homes("qqqq") == ()


def test_a_section_is_known_by_what_is_in_it() -> None:
    assert section_like(["stage", "contiguous_gradients"]) == ZERO
    assert section_like(["loss_scale", "hysteresis"]) == "fp16"
    assert section_like([]) is section_like(["enabled"]) is section_like(["r", "alpha"]) is None
