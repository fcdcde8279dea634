from pathlib import Path

import pytest

from autotune.job.launcher import Launcher
from autotune.lint.document.document import Document, read_document
from autotune.lint.document.reading_rules import READING_RULES
from autotune.lint.finding import Finding, Fix, Severity
from autotune.lint.subject import Launch


def _read(data: bytes | str, name: str = "ds_config.json", **launch: object) -> Document:
    return read_document(data, name=name, launch=Launch(**launch))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty"),
        (b" \n\t", "the file is empty"),
        (b'{"a": "\xff"}', "line 1, column 8: not readable: byte 0xff is not UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "the file is UTF-16"),
        (b'{"a"\0: 1}', "column 5: not readable: the file is binary"),
        (b'{"a": "' + b"x" * 10_000_000 + b'"}', "the file has 10.0 MB"),
        (b'{"a": ' * 10_000 + b"1" + b"}" * 10_000, "sections nested too deeply"),
        (b'{"a": ' + b"[" * 100_000, "sections nested too deeply"),
        (b"[1, 2]", "not a config: the file contains a list"),
        (b"7", "not a config: the file contains a number"),
        (b"null", "not a config: the file contains nothing"),
    ],
)
def test_a_file_that_is_not_a_config_is_one_finding(data: bytes, reason: str) -> None:
    document = _read(data)
    assert document.subject is None
    [found] = document.findings
    assert (found.rule, found.severity) == ("not-readable", Severity.ERROR)
    assert reason in found.message


def _doubled(times: int) -> str:
    """Return a few lines of YAML whose aliases stand for 2 ** times values."""
    lines = ["k0: &k0 [1, 1]"]
    lines += [f"k{n}: &k{n} [*k{n - 1}, *k{n - 1}]" for n in range(1, times)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [1, 2\nb: 3\n", "line 2, column 2: not readable as YAML"),
        ("a:\n\t- 1\n", "line 2, column 1: not readable as YAML"),
        ("a: " + "[" * 100 + "]" * 100, "sections nested too deeply"),
        ("a: " + "[" * 5_000, "maximum nesting depth"),
        ("a: &a [*a]\n", "too many values"),
        (_doubled(30), "too many values"),
        ("- 1\n", "not a config: the file contains a list"),
    ],
)
def test_yaml_that_is_not_a_config_is_one_finding(text: str, reason: str) -> None:
    document = _read(text, "config.yaml")
    assert document.subject is None
    [found] = document.findings
    assert found.severity is Severity.ERROR
    assert reason in found.message


def test_a_byte_order_mark_passes_in_deepspeed_only() -> None:
    data = b'\xef\xbb\xbf{"a": 1}'
    for launcher, severity in (
        (Launcher.DEEPSPEED, Severity.WARNING),
        (Launcher.HF, Severity.ERROR),
    ):
        document = _read(data, launcher=launcher)
        assert document.subject is not None
        assert document.subject.config == {"a": 1}
        [found] = document.findings
        assert (found.rule, found.severity) == ("hjson-only", severity)


@pytest.mark.parametrize("name", ["-", "ds_config.json", "ds_config", "config.yaml"])
def test_json_is_json_under_any_name(name: str) -> None:
    document = _read('{"fp16": {"enabled": true}, "a": 5e8}', name)
    assert document.findings == ()
    assert document.subject is not None
    assert document.subject.config == {"fp16": {"enabled": True}, "a": 5e8}
    assert document.subject.position("fp16.enabled") == (1, 11)


@pytest.mark.parametrize("comment", ["", "# why\n", "# [why]\n\n"])
def test_yaml_from_stdin_is_read(comment: str) -> None:
    document = _read(f"{comment}zero_optimization:\n  stage: 2\n", "-")
    assert document.subject is not None
    assert document.subject.zero_stage == 2
    line = comment.count("\n") + 2
    assert document.subject.position("zero_optimization.stage") == (line, 3)


def test_a_key_given_twice_in_yaml_is_an_error() -> None:
    [found] = _read("a: 1\nb: 2\na: 3\n", "config.yaml").findings
    assert (found.rule, found.field, found.line) == ("duplicate-key", "a", 3)


def test_a_number_that_yaml_takes_for_text_is_explained() -> None:
    document = _read("a: 1e-8\nb: '1e-8'\nc: 1.0e-8\n", "config.yaml")
    [found] = document.findings
    assert (found.rule, found.field, found.severity) == ("yaml-number", "a", Severity.NOTE)
    assert found.suggestion == "write 1.0e-8"
    assert document.subject is not None
    assert document.subject.config == {"a": "1e-8", "b": "1e-8", "c": 1e-8}


def test_a_config_inside_a_programs_own_yaml_is_found() -> None:
    text = "args:\n  lr: 1e-4\ndeepspeed:\n  zero_optimization:\n    stage: 2\n"
    document = _read(text, "train.yaml")
    assert document.findings == ()
    assert document.subject is not None
    assert document.subject.config == {"zero_optimization": {"stage": 2}}
    assert document.subject.position("zero_optimization.stage") == (5, 5)


def test_four_betas_are_a_decimal_comma() -> None:
    text = '{"optimizer": {"params": {"betas": [0,9, 0,999]}}}'
    [found] = _read(text).findings
    assert (found.rule, found.field) == ("decimal-comma", "optimizer.params.betas")


def test_reading_rules_have_pages() -> None:
    assert len({rule.id for rule in READING_RULES}) == len(READING_RULES)
    for rule in READING_RULES:
        assert rule.summary.endswith(".")
        assert "\n\n" in rule.page


_NEOX = """
{
  # model
  "num-layers": 6, "hidden-size": 256, "seq-length": 2048,
  "pipe-parallel-size": 2, "model-parallel-size": 4,
  "train-micro-batch-size-per-gpu": 32,
  "fp16": {"enabled": true},
}
"""


def test_of_a_neox_yaml_deepspeeds_keys_are_judged() -> None:
    document = _read(_NEOX, "6-9B.yml", gpus=16)
    assert document.findings == ()
    subject = document.subject
    assert subject is not None
    assert subject.form == "neox"
    assert subject.config == {
        "train_micro_batch_size_per_gpu": 32,
        "fp16": {"enabled": True},
    }
    assert subject.launch.data_parallel == 2
    assert subject.position("train_micro_batch_size_per_gpu") == (6, 3)
    found = Finding(
        rule="r",
        severity=Severity.ERROR,
        field="train_micro_batch_size_per_gpu",
        message="train_micro_batch_size_per_gpu=32: too many",
        fix=Fix(put={"train_micro_batch_size_per_gpu": 1}),
    )
    renamed = document.in_file_words(found)
    assert renamed.field == "train-micro-batch-size-per-gpu"
    assert renamed.message == "train-micro-batch-size-per-gpu=32: too many"
    assert renamed.fix is None


def test_a_file_in_deepspeeds_words_keeps_them(tmp_path: Path) -> None:
    found = Finding(rule="r", severity=Severity.ERROR, field="fp16", message="fp16: no")
    assert _read('{"fp16": 1}').in_file_words(found) is found


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        (
            "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\n",
            "distributed_type",
            "line 2, column 1: distributed_type=FSDP: accelerate starts a run without DeepSpeed",
        ),
        (
            "model_name_or_path: m\ndeepspeed: ds_z3.json\nbf16: true\n",
            "deepspeed",
            'line 2, column 1: not a ds_config: deepspeed="ds_z3.json" names it',
        ),
    ],
)
def test_a_file_that_holds_no_ds_config_is_one_error(text: str, field: str, message: str) -> None:
    document = _read(text, "run.yaml")
    assert document.subject is None
    [error] = document.findings
    assert (error.field, error.message, error.severity) == (field, message, Severity.ERROR)
