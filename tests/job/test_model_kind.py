"""Kinds of models, as the installed transformers has them."""

from pathlib import Path
from typing import Any

import pytest

from autotune.errors import NotJudgedError, WorkloadError
from autotune.job.model_kind import causal_types, other_kind, towers
from autotune.job.model_shape import load_model_shape, require_judgeable, shape_from_hf_config
from tests.job.test_model_shape import LLAMA, write_config

VISION: dict[str, Any] = {"model_type": "clip_vision_model", "hidden_size": 8}


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"model_type": "t5"}, r"an encoder-decoder model \(model_type t5\)"),
        ({"model_type": "bart", "vocab_size": 9}, "an encoder-decoder model"),
        ({"model_type": "whisper"}, "an encoder-decoder model"),
        ({"model_type": "new", "is_encoder_decoder": True}, "an encoder-decoder model"),
        ({"model_type": "bert"}, "an encoder "),
        ({"model_type": "vit"}, "an image model"),
        ({"model_type": "clip"}, "an image-text encoder"),
        ({"model_type": "wav2vec2"}, "an audio model"),
        ({"model_type": "mamba"}, "state-space or recurrent layers"),
        ({"model_type": "rwkv"}, "state-space or recurrent layers"),
        ({"model_type": "jamba"}, "state-space or recurrent layers"),
        ({"_class_name": "UNet2DConditionModel"}, r"diffusion model \(UNet2DConditionModel\)"),
    ],
    ids=str,
)
def test_what_is_no_decoder_of_text_is_named(
    config: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    with pytest.raises(NotJudgedError, match=f"is .*{kind}.*decoder-only language models are"):
        load_model_shape(write_config(tmp_path, LLAMA | config))
    assert other_kind(config) is not None


@pytest.mark.parametrize(
    "kind", ["llama", "qwen3", "gemma2", "gemma3_text", "gpt_oss", "glm4_moe", "mpt", "bloom"]
)
def test_decoders_of_text_are_supported(kind: str) -> None:
    assert other_kind({"model_type": kind}) is None
    assert towers({"model_type": kind}) == ()
    assert kind in causal_types()


def test_an_encoder_that_is_used_as_a_decoder_is_one() -> None:
    assert other_kind({"model_type": "bert", "is_decoder": True}) is None


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"model_type": "llava", "text_config": LLAMA, "vision_config": VISION}, "of llava is"),
        # As published: the text's dimensions are left to LLaMA's defaults.
        ({"model_type": "llava", "text_config": {"model_type": "llama"}}, "vision tower of llava"),
        (LLAMA | {"model_type": "qwen2_vl", "vision_config": VISION}, "vision tower of qwen2_vl"),
        (
            {"model_type": "new", "llm_config": LLAMA, "audio_config": {}, "vision_config": {}},
            "audio tower of new and the vision tower of new are not modelled",
        ),
    ],
    ids=str,
)
def test_a_language_model_with_a_tower_is_never_judged(
    config: dict[str, Any], named: str, tmp_path: Path
) -> None:
    with pytest.raises(NotJudgedError, match=f"memory is not judged: .*{named}"):
        require_judgeable(load_model_shape(write_config(tmp_path, config)))


def test_a_model_of_code_in_its_repository_is_not_run(tmp_path: Path) -> None:
    config = LLAMA | {"model_type": "internlm2", "auto_map": {"AutoConfig": "x.Y"}}
    with pytest.raises(NotJudgedError, match=r"internlm2' is built by code .*auto_map"):
        load_model_shape(write_config(tmp_path, config))
    # Where transformers has code of its own, that is what a script gets.
    native = LLAMA | {"model_type": "phi3", "auto_map": {"AutoConfig": "x.Y"}}
    assert load_model_shape(write_config(tmp_path, native)).model_type == "phi3"


def test_a_model_that_transformers_does_not_have_is_near_one_that_it_has(tmp_path: Path) -> None:
    config = LLAMA | {"model_type": "qwen33"}
    with pytest.raises(NotJudgedError, match=r"'qwen33': transformers .* did you mean .*qwen3"):
        load_model_shape(write_config(tmp_path, config))


def test_a_diffusion_pipeline_is_named(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text("{}")
    with pytest.raises(NotJudgedError, match="is a diffusion pipeline"):
        load_model_shape(str(tmp_path))


@pytest.mark.parametrize(
    ("dimension", "message"),
    [({"num_hidden_layers": 10_000}, "at most 400 layers"), ({"vocab_size": 10**15}, "at most 1e")],
)
def test_sizes_that_would_take_for_ever_are_refused(
    dimension: dict[str, int], message: str
) -> None:
    shape = shape_from_hf_config(LLAMA | dimension, name="m", where="c")
    with pytest.raises(NotJudgedError, match=message):
        require_judgeable(shape)


def test_a_missing_dimension_of_a_text_model_is_still_a_fault(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="vocab_size is missing"):
        load_model_shape(write_config(tmp_path, {**LLAMA, "vocab_size": None}))
