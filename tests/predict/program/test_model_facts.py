"""What transformers says of a model: attention and size."""

import subprocess
import sys
from typing import Any

import pytest

from autotune.errors import WorkloadError
from autotune.job.model_shape import ModelShape, shape_from_hf_config
from autotune.predict.memory.replay import replay
from autotune.predict.program import families
from autotune.predict.program.items import Part
from autotune.predict.program.model_facts import (
    attention_of,
    count_parameters,
    supported_attention,
)
from autotune.predict.program.trace import trace_program
from autotune.predict.training_job import ModelSettings
from tests.predict.traced import COMMON, training_of

EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 256}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 2},
    "mistral": {},
    "qwen2": {"num_key_value_heads": 2},
    "mixtral": {"num_local_experts": 4},
    "gpt2": {"n_positions": 64, "n_inner": 1_408},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 512},
    "qwen3_moe": EXPERTS | {"num_experts": 4},
    "deepseek_v3": EXPERTS | {"n_routed_experts": 4, "q_lora_rank": 64, "n_group": 1},
    "gpt_neox": {"tie_word_embeddings": True},
}


def shape_of(family: str, **keys: Any) -> ModelShape:
    config = COMMON | {"model_type": family} | FAMILIES.get(family, {}) | keys
    return shape_from_hf_config(config, name="test", where="test")


@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_are_counted_as_transformers_builds_them(family: str) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    shape = shape_of(family)
    values = dict(shape.hf_config)
    config = AutoConfig.for_model(values.pop("model_type"), **values)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert count_parameters(shape) == sum(p.numel() for p in model.parameters())


def test_the_default_is_what_the_models_code_supports() -> None:
    assert attention_of(shape_of("qwen3")) == "sdpa"
    assert attention_of(shape_of("gemma2", head_dim=64)) == "eager"
    assert attention_of(shape_of("bloom", n_head=8)) == "eager"


def test_an_attention_that_the_code_refuses_is_refused_with_the_others_named() -> None:
    shape = shape_of("gemma2", head_dim=64)
    assert attention_of(shape, "flash_attention_2") == "flash_attention_2"
    with pytest.raises(
        WorkloadError,
        match=r"--attn-implementation sdpa: .* gemma2; it supports eager, flex_attention, flash",
    ):
        attention_of(shape, "sdpa")
    with pytest.raises(WorkloadError, match=r"flex_attention: .* gpt2; it supports sdpa, eager"):
        attention_of(shape_of("gpt2"), "flex_attention")


@pytest.mark.parametrize("family", sorted(families.HAND_WRITTEN))
def test_what_is_written_down_is_what_transformers_says(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = shape_of(family)
    written = supported_attention(shape)
    monkeypatch.setattr("autotune.predict.program.model_facts.HAND_WRITTEN", frozenset())
    found = supported_attention(shape)
    assert found[0] == written[0]
    assert set(found) == set(written)


def test_a_model_that_cannot_be_built_is_named() -> None:
    with pytest.raises(WorkloadError, match="cannot build model_type nobody"):
        attention_of(shape_of("nobody"))


def test_hand_written_families_need_no_import() -> None:
    code = """
import sys
from autotune.job.model_shape import PRESETS
from autotune.predict.program.model_facts import attention_of, count_parameters
print(attention_of(PRESETS["7b"]), count_parameters(PRESETS["7b"]))
print([m for m in ("torch", "transformers") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["sdpa 6738415616", "[]"]


@pytest.mark.parametrize("attention", ["flash_attention_2", "flex_attention"])
def test_a_fused_kernel_keeps_no_scores_though_sdpa_is_refused(attention: str) -> None:
    config = COMMON | {"model_type": "gemma2", "head_dim": 64}
    kept = {}
    for name in ("eager", attention):
        settings = ModelSettings(attn_implementation=name)
        training = training_of(config, settings=settings)
        peak = replay(training, trace_program(training), workspace_bytes=0).peaks[Part.LOSS]
        kept[name] = peak.items["activations"]
    scores = 3 * 2 * 8 * 512**2  # layers, sequences, heads
    # In bf16: scores, capped scores and softmax at the least.
    assert kept["eager"] - kept[attention] > 3 * 2 * scores


def test_fused_and_torchs_own_kernels_hold_the_same() -> None:
    config = COMMON | {"model_type": "qwen3", "num_key_value_heads": 2}
    peaks = []
    for name in ("sdpa", "flash_attention_2"):
        training = training_of(config, settings=ModelSettings(attn_implementation=name))
        peaks.append(replay(training, trace_program(training), workspace_bytes=0).peaks)
    assert peaks[0] == peaks[1]


def test_values_narrower_than_queries_keep_no_scores_either() -> None:
    """The CPU's kernel would; CUDA's takes any widths."""
    kept = []
    for seq_len in (256, 512):
        config = COMMON | {"model_type": "deepseek_v3"} | FAMILIES["deepseek_v3"]
        training = training_of(config, seq_len=seq_len)
        peak = replay(training, trace_program(training), workspace_bytes=0).peaks[Part.LOSS]
        kept.append(peak.items["activations"])
    assert kept[1] == pytest.approx(2 * kept[0], rel=0.02)
