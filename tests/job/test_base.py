import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import ConfigError
from autotune.job.base import read_base

_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def _read(tmp_path: Path, text: str) -> dict[str, Any]:
    path = tmp_path / "ds_config.json"
    path.write_text(text, encoding="utf-8")
    return dict(read_base(path).config)


@given(st.dictionaries(st.text(), _json, min_size=1, max_size=4))
def test_all_json_is_read(tmp_path_factory: pytest.TempPathFactory, config: dict[str, Any]) -> None:
    folder = tmp_path_factory.mktemp("read")
    assert _read(folder, json.dumps(config)) == config


def test_comments_and_trailing_commas_pass_as_in_deepspeed(tmp_path: Path) -> None:
    text = (
        '{\n  # why\n  "zero_optimization": {"stage": 2,}, // and\n  "bf16": {"enabled": true},\n}'
    )
    config = _read(tmp_path, text)
    assert config == {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,\n "b": [1', "line 2, column 7: b: a missing closing bracket"),
        ('{"a": {"b": 1, "b": 2}}', r"line 1, column \d+: a.b is given twice.*DeepSpeed refuses"),
        ("[1, 2]", "the file contains a list, not a mapping"),
        ("{}", "holds an empty mapping, not a ds_config"),
        ("", "the file is empty"),
    ],
)
def test_a_text_that_is_not_a_config_is_reported_with_its_place(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        _read(tmp_path, text)
    assert "ds_config.json: " in str(raised.value)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.json: no such file"):
        read_base(tmp_path / "nowhere.json")


def test_a_file_that_is_not_text_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "binary.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"binary\.json: .*not readable: the file is UTF-16"):
        read_base(path)
