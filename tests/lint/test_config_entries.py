"""Every key of a config is met with its field."""

from autotune.lint.config_entries import entries
from autotune.lint.format_value import format_value


def test_keys_are_met_section_by_section() -> None:
    config = {
        "zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}, "x": {"y": 1}},
        "optimizer": {"type": "Adam", "params": {"lr": 1}},
        "lora": {"r": 8},
    }
    met = {entry.path: entry.field is not None for entry in entries(config)}
    assert met == {
        "zero_optimization": True,
        "zero_optimization.stage": True,
        "zero_optimization.offload_param": True,
        "zero_optimization.offload_param.device": True,
        "zero_optimization.x": False,
        "optimizer": True,
        "optimizer.type": True,
        "optimizer.params": True,
        "lora": False,
    }


def test_a_name_with_dots_is_not_a_field() -> None:
    [entry] = entries({"zero_optimization.stage": 2})
    assert entry.field is None
    assert (entry.key, entry.section) == ("zero_optimization.stage", "")


def test_any_value_can_be_formatted() -> None:
    assert format_value({"a": {1, 2}}).startswith('{"a": ')
    assert format_value(float("nan")) == "NaN"
    assert len(format_value("x" * 99)) == 40
