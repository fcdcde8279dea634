"""What a memory verdict takes for what was left open, and what it says of that."""

from dataclasses import replace
from typing import Any

from autotune.gate.fit.memory import judge_memory
from autotune.gate.fit.recorded import Recorded
from autotune.job.launcher import Launcher
from autotune.lint.finding import Severity
from tests.gate.judging import config, judge, setting, subject


def test_an_unknown_batch_is_taken_at_its_least() -> None:
    judgement = judge(config(3, micro="auto"), launcher=Launcher.HF)
    assert judgement.memory is not None
    assert judgement.memory["assumptions"] == ["a micro batch of 1 (none is given)"]


def test_the_train_batch_size_says_the_micro_batch() -> None:
    whole = config(3, train_batch_size=128, gradient_accumulation_steps=2)
    del whole["train_micro_batch_size_per_gpu"]
    known = judge(config(3, micro=8, gradient_accumulation_steps=2))
    assert judge(whole).memory == known.memory


def test_an_unknown_length_is_taken_at_its_least_and_named() -> None:
    judgement = judge(config(3), seq_len=None)
    assert judgement.memory is not None
    assert judgement.memory["assumptions"] == ["sequences of 128 tokens (--seq-len is not given)"]


def test_a_warning_says_what_it_rests_on_and_an_error_needs_not() -> None:
    unsure, over = (
        judge(config(3, micro=64), seq_len=None, device=device).findings[0]
        for device in ("a100-40gb", "t4")
    )
    assert unsure.severity is Severity.WARNING
    assert unsure.message.endswith(" (assuming sequences of 128 tokens (--seq-len is not given))")
    assert over.severity is Severity.ERROR
    assert "assuming" not in over.message


def test_adapters_of_which_nothing_is_said_are_taken_with_checkpointing_and_named() -> None:
    told = "adapters with activation checkpointing (--activation-checkpointing is not given)"
    for trainable, known, named in ((1e7, None, [told]), (1e7, False, []), (1e12, None, [])):
        judgement = judge(
            config(3),
            num_trainable=trainable,
            num_parameters=7e9,
            activation_checkpointing=known,
        )
        assert judgement.memory is not None
        assert judgement.memory["assumptions"] == named


def test_a_precision_that_hangs_on_arguments_nobody_gave_is_named() -> None:
    told = ["bf16 (--hf-args is not given)"]
    autos = config(3, bf16={"enabled": "auto"})
    silent = {key: value for key, value in autos.items() if key != "bf16"}
    for ds_config, launch, named in (
        (autos, {}, told),
        (silent, {"launcher": Launcher.HF}, told),
        (silent, {}, []),
        (autos, {"launcher": Launcher.HF, "hf_args": {"bf16": True}}, []),
    ):
        judgement = judge(ds_config, **launch)
        assert judgement.memory is not None
        assert judgement.memory["assumptions"] == named


def test_a_record_says_what_the_launch_does_not() -> None:
    recorded = Recorded(seq_len=2_048, activation_checkpointing=False, attn_implementation="eager")
    told = replace(setting("7b"), recorded=recorded)
    nothing = judge_memory(subject(config(3, micro=4), seq_len=None), setting=told)
    assert nothing.memory is not None
    assert nothing.memory["assumptions"] == [
        "sequences of 2048 tokens (as in the record)",
        "without activation checkpointing (as in the record)",
        "eager attention (as in the record)",
    ]
    (finding,) = nothing.findings
    assert finding.severity is Severity.ERROR
    assert "(assuming sequences of 2048 tokens (as in the record); without" in finding.message
    usual = replace(told, recorded=replace(recorded, attn_implementation="sdpa"))
    job = config(3, micro=4)
    launches: tuple[dict[str, Any], ...] = (
        {"seq_len": 512},
        {"activation_checkpointing": True},
    )
    for launch in launches:
        said = {"seq_len": None, "activation_checkpointing": None} | launch
        alone = {"seq_len": 2_048, "activation_checkpointing": False} | launch
        by_record = judge_memory(subject(job, **said), setting=usual).memory
        by_options = judge(job, **alone).memory
        assert by_record is not None
        assert by_options is not None
        assert by_record["device"] == by_options["device"]
        assert len(by_record["assumptions"]) == 1
