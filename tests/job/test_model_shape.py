import json
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import WorkloadError
from autotune.job.model_shape import PRESETS, ModelShape, load_model_shape, shape_from_hf_config

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}


def _shape(**changes: Any) -> ModelShape:
    return shape_from_hf_config(LLAMA | changes, name="m", where="config.json")


def write_config(folder: Path, config: dict[str, Any]) -> str:
    """Write a model's folder and return its name."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(folder)


@pytest.mark.parametrize(
    ("name", "parameters"),
    # As published: Llama 2 7B and 13B, GPT-2 small, medium, large and XL.
    [
        ("7b", 6_738_415_616),
        ("13b", 13_015_864_320),
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
    ],
)
def test_presets_have_the_published_number_of_parameters(name: str, parameters: int) -> None:
    assert load_model_shape(name).num_parameters == parameters


@pytest.mark.parametrize(
    ("name", "billions"),
    [("125m", 0.125), ("350m", 0.35), ("1.3b", 1.3), ("34b", 34), ("70b", 70)],
)
def test_a_preset_is_about_as_large_as_its_name_says(name: str, billions: float) -> None:
    assert load_model_shape(name).num_parameters == pytest.approx(billions * 1e9, rel=0.1)


@pytest.mark.parametrize("name", PRESETS)
def test_the_parameters_are_those_of_the_real_model(name: str) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    shape = PRESETS[name]
    fields = dict(shape.hf_config)
    config = AutoConfig.for_model(fields.pop("model_type"), **fields)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert sum(p.numel() for p in model.parameters()) == shape.num_parameters


def test_a_name_in_capitals_is_the_same_preset() -> None:
    assert load_model_shape("7B") is PRESETS["7b"]


def test_a_folder_and_its_config_are_the_same_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    assert load_model_shape(str(tmp_path)) == load_model_shape(str(tmp_path / "config.json"))


@pytest.mark.parametrize("name", PRESETS)
def test_a_shape_survives_json(name: str) -> None:
    as_json = json.loads(json.dumps(PRESETS[name].to_json()))
    assert ModelShape.from_json(as_json) == PRESETS[name]


def test_what_a_config_leaves_out_is_what_hugging_face_assumes() -> None:
    shape = _shape()
    assert shape.num_key_value_heads == 4
    assert shape.intermediate_size == 256
    assert not shape.tie_word_embeddings
    assert _shape(model_type="gpt2").tie_word_embeddings


def test_a_multimodal_config_keeps_the_language_model_inside() -> None:
    outer = {"model_type": "llava", "text_config": LLAMA, "vision_config": {"hidden_size": 1}}
    assert shape_from_hf_config(outer, name="m", where="c").hidden_size == 64
    assert _shape(text_config=None).hidden_size == 64


@pytest.mark.parametrize("value", [0, -1, 1.5, "64", True, [64]])
@pytest.mark.parametrize("key", ["hidden_size", "vocab_size", "num_key_value_heads", "n_inner"])
def test_a_dimension_that_is_no_count_is_named(key: str, value: object) -> None:
    with pytest.raises(WorkloadError, match=r"config\.json: .* is not a positive whole number"):
        _shape(**{key: value})


def test_every_fault_of_a_config_is_named_at_once() -> None:
    with pytest.raises(WorkloadError, match="model_type is missing") as raised:
        shape_from_hf_config({"vocab_size": -1}, name="m", where="config.json")
    assert len(raised.value.faults) == 5


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(WorkloadError, match=r"hidden_size=64 is not divisible by .*heads=5"):
        _shape(num_attention_heads=5)


@pytest.mark.parametrize("key", ["head_dim", "qk_nope_head_dim", "kv_channels"])
def test_heads_of_a_size_of_their_own_need_not_divide_the_width(key: str) -> None:
    shape = _shape(num_attention_heads=5, num_key_value_heads=1, **{key: 16})
    assert (shape.attention_width, shape.key_value_width) == (80, 16)


def test_the_heads_of_latent_attention_have_two_parts() -> None:
    shape = _shape(num_attention_heads=6, qk_nope_head_dim=16, qk_rope_head_dim=8)
    assert shape.attention_width == 6 * 24


def test_experts_count_as_parameters() -> None:
    dense, experts = _shape(), _shape(model_type="mixtral", num_local_experts=8)
    block = 3 * 64 * 256
    assert experts.num_parameters == dense.num_parameters + 2 * (7 * block + 8 * 64)


def test_what_is_left_out_survives_json_and_older_records_lack_it() -> None:
    outer = {"model_type": "llava", "text_config": LLAMA, "vision_config": {"hidden_size": 1}}
    shape = shape_from_hf_config(outer, name="m", where="c")
    assert shape.unmodelled == ("vision tower of llava",)
    as_json = json.loads(json.dumps(shape.to_json()))
    assert ModelShape.from_json(as_json) == shape
    del as_json["unmodelled"]
    assert ModelShape.from_json(as_json).unmodelled == ()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty Hugging Face cache."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def test_a_hub_name_is_found_in_the_local_cache_by_what_main_points_to(hub: Path) -> None:
    repository = hub / "models--org--name"
    for revision, layers in (("aaa", 2), ("bbb", 3)):
        write_config(repository / "snapshots" / revision, LLAMA | {"num_hidden_layers": layers})
    (repository / "refs").mkdir()
    for revision, layers in (("aaa", 2), ("bbb", 3)):
        (repository / "refs" / "main").write_text(revision)
        shape = load_model_shape("org/name")
        assert (shape.name, shape.num_hidden_layers) == ("org/name", layers)


def test_a_hub_name_is_found_without_a_main(hub: Path) -> None:
    write_config(hub / "models--old-name" / "snapshots" / "aaa", LLAMA)
    assert load_model_shape("old-name").name == "old-name"


def test_a_hub_name_that_is_not_there_names_the_download(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WorkloadError, match=r"run `hf download Qwen/Qwen3-8B config\.json`"):
        load_model_shape("Qwen/Qwen3-8B")
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.setenv("HF_HOME", str(hub / "home"))
    write_config(hub / "home" / "hub" / "models--Qwen--Qwen3-8B" / "snapshots" / "a", LLAMA)
    assert load_model_shape("Qwen/Qwen3-8B").num_hidden_layers == 2
