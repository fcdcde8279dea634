"""Programs of many layers from the trace of a few, against the trace of all of them."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from autotune.predict.memory.replay import replay
from autotune.predict.program.events import ALLOCATE, Program, Recorder
from autotune.predict.program.trace import step, trace_program
from autotune.predict.program.trace.expand import (
    MarkedProgram,
    NotExpandableError,
    choose_layers,
    expand,
)
from autotune.predict.program.trace.layer_marks import LayerMarks
from autotune.predict.program.trace.micro_batches import scaled
from autotune.predict.training_job import ModelSettings, Training
from tests.predict.traced import COMMON, training_of

EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, "moe_intermediate_size": 256}
SLIDING: dict[str, Any] = {"head_dim": 64, "sliding_window": 64}
DEEP: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {"num_key_value_heads": 2},
    "phi": {},
    "gpt_neox": {},
    "gemma2": SLIDING,
    # Every layer's own entry of the config counts, not the first ones.
    "uneven": SLIDING
    | {"model_type": "gemma2"}
    | {"layer_types": ["sliding_attention"] * 7 + ["full_attention"] * 3},
    "gpt_oss": SLIDING | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": EXPERTS | {"num_experts": 4, "mlp_only_layers": [0, 4]},
    "glm4_moe": EXPERTS
    | {"n_routed_experts": 4, "first_k_dense_replace": 2, "n_shared_experts": 1, "head_dim": 64},
    "deepseek_v3": EXPERTS
    | {"n_routed_experts": 8, "first_k_dense_replace": 1, "n_shared_experts": 1, "n_group": 2}
    | {"topk_group": 1, "q_lora_rank": 64, "kv_lora_rank": 64},
}
NUM_LAYERS = 10


def deep_job(
    family: str, zero: dict[str, Any] | None = None, *, layers: int = NUM_LAYERS, **keys: Any
) -> Training:
    config = COMMON | {"model_type": family, "num_hidden_layers": layers} | DEEP[family]
    return training_of(config, zero, seq_len=128, **keys)


def traced_whole(training: Training, monkeypatch: pytest.MonkeyPatch) -> Program:
    with monkeypatch.context() as patch:
        patch.setattr(step, "shorten", lambda *_: None)
        return step.trace_step(training)


@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "checkpointed"])
@pytest.mark.parametrize("family", DEEP)
def test_layers_that_are_repeated_give_the_whole_trace(
    family: str, checkpointing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ModelSettings(activation_checkpointing=checkpointing)
    training = deep_job(family, settings=settings)
    repeated = step.trace_repeated(training)
    whole = traced_whole(training, monkeypatch)
    assert repeated is not None
    assert repeated.parameters == whole.parameters
    assert repeated.num_slots == whole.num_slots
    assert repeated.events == whole.events


@pytest.mark.parametrize("stage", [0, 1, 3])
@pytest.mark.parametrize("family", ["gemma2", "glm4_moe"])
def test_repeated_and_whole_traces_need_the_same_memory(
    family: str, stage: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = deep_job(family, {"stage": stage})
    repeated, whole = (
        replay(training, program, workspace_bytes=0)
        for program in (trace_program(training), traced_whole(training, monkeypatch))
    )
    assert repeated == whole


def test_few_layers_are_traced_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    traced: list[int] = []

    class Counted(LayerMarks):
        def marked(self, program: Program) -> MarkedProgram:
            traced.append(len(self.layers))
            return super().marked(program)

    monkeypatch.setattr(step, "LayerMarks", Counted)
    for family, most in (("qwen3", 4), ("gemma2", 8), ("glm4_moe", 6)):
        config = COMMON | {"model_type": family, "num_hidden_layers": 94} | DEEP[family]
        program = step.trace_step(training_of(config, seq_len=16))
        assert traced.pop() <= most
        assert program.parameters[-3].name.startswith("model.layers.93.")


@pytest.mark.parametrize("model", ["what its layers return is stacked", "all layers are one"])
def test_a_model_whose_layers_do_not_repeat_is_traced_whole(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = COMMON | {"num_hidden_layers": 6}
    if "stacked" in model:
        # The loss of the experts' balance reads every layer's router.
        config |= {"model_type": "mixtral", "num_local_experts": 4, "output_router_logits": True}
    else:
        config |= {"model_type": "qwen3"}
        monkeypatch.setattr(LayerMarks, "note_backward", lambda _: None)
    training = training_of(config, seq_len=32)
    assert step.trace_repeated(training) is None
    program = step.trace_step(training)
    assert program.events == traced_whole(training, monkeypatch).events


@pytest.mark.parametrize(
    ("kinds", "chosen"),
    [
        ("a", "a"),
        ("aaa", "aaa"),
        ("a" * 94, "aaaa"),
        ("ab" * 20, "abababab"),
        ("d" + "m" * 60, "dmmmm"),
        ("dmdm", "dmdm"),
    ],
)
def test_the_layers_that_are_chosen_show_every_kind(kinds: str, chosen: str) -> None:
    choice = choose_layers(kinds)
    assert "".join(kinds[index] for index in choice.chosen) == chosen
    assert [chosen[position] for position in choice.same_as] == list(kinds)


@pytest.mark.parametrize("period", ["aaaaab", "aaab", "abcd", "aab"])
def test_any_pattern_of_layers_is_put_together_of_its_neighbourhoods(period: str) -> None:
    kinds = (period * 20)[:-1]
    choice = choose_layers(kinds)
    assert len(choice.chosen) <= 5 * len(period)
    short = [kinds[index] for index in choice.chosen]
    for layer in range(1, len(kinds) - 1):
        position = choice.same_as[layer]
        assert short[position - 1 : position + 2] == list(kinds[layer - 1 : layer + 2])


def test_an_operation_that_reads_several_layers_keeps_them_from_being_repeated() -> None:
    program = Program((), (), 0)
    for read, is_fault in ((4, False), (5, True), (8, True), (9, False), (13, False)):
        marks = LayerMarks(Recorder([]), [torch.nn.Identity() for _ in range(3)])
        marks.forward = [5, 7, 9, 12]
        marks.note_reads([read])
        marks.backward = [14, 15, 16, 17]
        if is_fault:
            with pytest.raises(NotExpandableError, match="reads what several layers made"):
                marks.marked(program)
        else:
            assert marks.marked(program).forward == (5, 7, 9, 12)


def test_layers_that_look_alike_and_are_not_are_not_repeated() -> None:
    """Two of four layers of one kind allocate different tensors."""
    events: list[tuple[Any, ...]] = [(ALLOCATE, k, 100 + (k == 2), 0) for k in range(4)]
    marked = MarkedProgram(
        program=Program((), tuple(events), 4), forward=(0, 1, 2, 3, 4), backward=(4,) * 5
    )
    with pytest.raises(NotExpandableError, match="forward of two layers that look alike differs"):
        expand(marked, choose_layers("a" * 9), places=[], parameters=[], names={})


@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "checkpointed"])
@pytest.mark.parametrize("family", ["qwen3", "gemma2", "gpt_oss", "deepseek_v3"])
def test_larger_micro_batches_follow_from_two(family: str, checkpointing: bool) -> None:
    settings = ModelSettings(activation_checkpointing=checkpointing)
    training = deep_job(family, layers=3, settings=settings, train_micro_batch_size_per_gpu=9)
    followed = trace_program(training)
    assert followed == step.trace_step(training)


def test_programs_that_differ_in_more_than_sizes_are_not_scaled() -> None:
    program = step.trace_step(training_of(COMMON | {"model_type": "qwen3"}, seq_len=16))
    other = replace(program, events=program.events[:-1])
    assert scaled((program, other), 5) is None
    assert scaled((program, program), 5) == program
