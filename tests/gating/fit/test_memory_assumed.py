"""What a memory answer assumes for facts that are not given, and how it reports that."""

import json
from pathlib import Path
from typing import Any

import pytest

from autotune.job.job import Job
from autotune.job.launcher import Launcher
from autotune.job.model_shape import load_model_shape
from autotune.job.resolve import RecordedJob
from autotune.lint.finding import Severity
from autotune.predict.memory.fit import Answer
from tests.gating.judging import config, judge

SEQ_LEN = "sequence length 2048 (preset; --seq-len not given)"
MICRO_BATCH = "micro batch 8 (Trainer default; --hf-args not given)"


def test_auto_is_the_trainers_default_and_is_reported() -> None:
    judgement = judge(config(3, micro="auto"), launcher=Launcher.HF, activation_checkpointing=True)
    assert judgement.answer.answer is Answer.FITS
    assert judgement.answer.assumed == (MICRO_BATCH,)


def test_auto_that_fits_only_below_the_trainers_default_is_not_judged() -> None:
    judgement = judge(config(3, micro="auto"), launcher=Launcher.HF, activation_checkpointing=False)
    assert judgement.answer.answer is Answer.NOT_JUDGED
    assert "--hf-args" in str(judgement.answer.reason)
    never = judge(config(3, micro="auto"), device="t4", activation_checkpointing=False)
    assert never.answer.answer is Answer.DOES_NOT_FIT


def test_a_micro_batch_that_is_not_given_is_not_judged() -> None:
    without = config(3)
    del without["train_micro_batch_size_per_gpu"]
    judgement = judge(without, activation_checkpointing=True)
    assert judgement.answer.answer is Answer.NOT_JUDGED
    assert judgement.answer.assumed == ("micro batch 1 (none is given)",)


def test_the_train_batch_size_decides_the_micro_batch() -> None:
    whole = config(3, train_batch_size=128, gradient_accumulation_steps=2)
    del whole["train_micro_batch_size_per_gpu"]
    known = judge(config(3, micro=8, gradient_accumulation_steps=2))
    assert judge(whole).memory == known.memory


@pytest.mark.parametrize(
    ("micro", "device", "answer"),
    [
        (1, "a100-80gb", Answer.NOT_JUDGED),
        (16, "a100-80gb", Answer.NOT_JUDGED),
        (16, "t4", Answer.DOES_NOT_FIT),
    ],
)
def test_nothing_fits_under_an_assumed_sequence_length(
    micro: int, device: str, answer: Answer
) -> None:
    judgement = judge(
        config(3, micro=micro), device=device, seq_len=None, activation_checkpointing=True
    )
    assert judgement.answer.answer is answer
    assert judgement.answer.assumed == (SEQ_LEN,)
    assert all(f.severity is not Severity.ERROR for f in judgement.findings) == (
        answer is Answer.NOT_JUDGED
    )


def test_the_finding_has_its_assumptions_and_the_options_that_settle_it() -> None:
    (finding,) = judge(config(3), seq_len=None, activation_checkpointing=True).findings
    assert finding.severity is Severity.WARNING
    assert finding.message.endswith(f"(assumed: {SEQ_LEN})")
    assert str(finding.suggestion) == "give --seq-len"


def test_a_precision_from_the_trainers_arguments_is_not_an_assumption(tmp_path: Path) -> None:
    arguments = tmp_path / "args.json"
    arguments.write_text(json.dumps({"bf16": True}), encoding="utf-8")
    assumed = ("precision bf16 (preset; --precision not given)",)
    autos = config(3, bf16={"enabled": "auto"})
    silent = {key: value for key, value in autos.items() if key != "bf16"}
    cases: tuple[tuple[dict[str, Any], dict[str, Any], tuple[str, ...]], ...] = (
        (autos, {}, assumed),
        (silent, {"launcher": Launcher.HF}, assumed),
        (silent, {}, ()),
        (autos, {"launcher": Launcher.HF, "hf_args": arguments}, ()),
    )
    for ds_config, launch, named in cases:
        assert judge(ds_config, **launch).answer.assumed == named


def test_a_record_states_what_no_other_source_does() -> None:
    shape = load_model_shape("7b")
    recorded = Job(seq_len=2_048, activation_checkpointing=False, attn_implementation="eager")
    record = RecordedJob(job=recorded, shape=shape)
    job = config(3, micro=4)
    nothing: dict[str, Any] = {"model": None, "record": record, "seq_len": None}
    by_record = judge(job, **nothing)
    by_options = judge(
        job, seq_len=2_048, activation_checkpointing=False, attn_implementation="eager"
    )
    assert by_record.memory == by_options.memory
    assert by_record.answer.assumed == ()
    options: tuple[dict[str, Any], ...] = ({"seq_len": 512}, {"activation_checkpointing": True})
    for option in options:
        assert judge(job, **{**nothing, **option}).memory != by_record.memory
