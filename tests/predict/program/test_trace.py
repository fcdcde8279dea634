"""Programs traced from Hugging Face's code, beside those written by hand."""

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from autotune.errors import WorkloadError
from autotune.predict.memory.replay import replay
from autotune.predict.memory.summary import summarise, weigh
from autotune.predict.program import families
from autotune.predict.program.events import (
    ALLOCATE,
    ENTER,
    FETCH,
    FREE,
    GRADIENT,
    RELEASE,
    Program,
)
from autotune.predict.program.items import Item, Part
from autotune.predict.program.trace import trace_program
from autotune.predict.training_job import ModelSettings, Training
from tests.predict.jobs import HOPPER_WORKSPACE_BYTES
from tests.predict.traced import COMMON, training_of

GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "n_embd": 512,
    "n_layer": 3,
    "n_head": 8,
    "vocab_size": 8_000,
    "n_positions": 1_024,
    "tie_word_embeddings": True,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": COMMON | {"model_type": "llama"},
    "grouped queries": COMMON | {"model_type": "llama", "num_key_value_heads": 2},
    "tied": COMMON | {"model_type": "llama", "tie_word_embeddings": True},
    "mistral": COMMON | {"model_type": "mistral", "num_key_value_heads": 2},
    "qwen2": COMMON | {"model_type": "qwen2", "num_key_value_heads": 2},
    "mixtral": COMMON | {"model_type": "mixtral", "num_local_experts": 4},
    "gpt2": GPT2 | {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "gpt2 with dropout": GPT2,
    "opt": COMMON
    | {"model_type": "opt", "ffn_dim": 2_048, "word_embed_proj_dim": 512, "dropout": 0.1}
    | {"max_position_embeddings": 1_024, "tie_word_embeddings": True},
}


def peaks(training: Training) -> tuple[int, int]:
    """Return the traced and the hand-written peak."""
    traced, written = (
        replay(training, program, workspace_bytes=HOPPER_WORKSPACE_BYTES).peak_allocated_bytes
        for program in (trace_program(training), families.program(training))
    )
    return traced, written


@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "checkpointed"])
@pytest.mark.parametrize("family", FAMILIES)
def test_traced_and_hand_written_bills_agree(family: str, checkpointing: bool) -> None:
    settings = ModelSettings(activation_checkpointing=checkpointing)
    traced, written = peaks(training_of(FAMILIES[family], settings=settings))
    assert traced == pytest.approx(written, rel=0.02)


@pytest.mark.parametrize("family", FAMILIES)
def test_they_agree_about_what_forward_keeps(family: str) -> None:
    training = training_of(FAMILIES[family] | {"vocab_size": 100})
    traced, written = (
        replay(training, program, workspace_bytes=0).peaks[Part.LOSS].items["activations"]
        for program in (trace_program(training), families.program(training))
    )
    assert traced == pytest.approx(written, rel=0.01)


@pytest.mark.parametrize("key_value_heads", [8, 2])
def test_backward_makes_the_same_fp32_tensors(key_value_heads: int) -> None:
    """Among them attention's sums, which only CUDA's kernel has: the tracer adds them."""
    training = training_of(FAMILIES["llama"] | {"num_key_value_heads": key_value_heads})
    wide_bytes = 4 * training.tokens * training.model.hidden_size
    traced, written = (
        sum(
            kind == ALLOCATE and size == wide_bytes and item == Item.ACTIVATION_GRADIENTS
            for kind, _, size, item in program.events
        )
        for program in (trace_program(training), families.program(training))
    )
    assert traced == written > 0


def test_a_checkpointed_layers_items_agree() -> None:
    training = training_of(
        FAMILIES["llama"] | {"vocab_size": 100},
        settings=ModelSettings(activation_checkpointing=True),
        train_micro_batch_size_per_gpu=8,
    )
    traced, written = (
        replay(training, program, workspace_bytes=0).peaks[Part.BACKWARD].items
        for program in (trace_program(training), families.program(training))
    )
    for item in ("activations", "activation_gradients"):
        assert traced[item] == pytest.approx(written[item], rel=0.02)


@pytest.mark.parametrize("zero", [{"stage": 0}, {"stage": 1}, {"stage": 3}], ids=str)
def test_they_agree_at_every_stage(zero: dict[str, Any]) -> None:
    traced, written = peaks(training_of(FAMILIES["llama"], zero))
    assert traced == pytest.approx(written, rel=0.02)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "mixtral"])
def test_they_agree_about_what_stage_3_gathers(family: str) -> None:
    """With so many ranks and so few tokens, gathered weights are most of the peak.

    A trace knows nothing of leaf modules, as whose one mixtral's block is written down.
    """
    training = training_of(
        FAMILIES[family] | {"num_hidden_layers": 12, "n_layer": 12, "vocab_size": 100},
        {"stage": 3, "reduce_bucket_size": 100_000, "stage3_max_live_parameters": 1}
        | {"stage3_max_reuse_distance": 1},
        ranks=512,
        seq_len=16,
    )
    traced, written = (
        replay(training, program, workspace_bytes=0).peak_allocated_bytes
        for program in (trace_program(training), families.program(training))
    )
    assert traced == pytest.approx(written, rel=0.02)


@pytest.mark.parametrize("family", ["llama", "grouped queries", "gpt2"])
def test_they_agree_about_eager_attention(family: str) -> None:
    settings = ModelSettings(attn_implementation="eager")
    traced, written = peaks(training_of(FAMILIES[family], settings=settings))
    assert traced == pytest.approx(written, rel=0.02)


@pytest.mark.parametrize("keys", [{"bf16": {}}, {"bf16": {}, "fp16": {"enabled": True}}], ids=str)
def test_they_agree_in_other_precisions(keys: dict[str, Any]) -> None:
    traced, written = peaks(training_of(FAMILIES["llama"], **keys))
    assert traced == pytest.approx(written, rel=0.02)


@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_are_those_of_hugging_face(family: str) -> None:
    training = training_of(FAMILIES[family])
    traced, written = trace_program(training).parameters, families.program(training).parameters
    assert sorted(p.num_elements for p in traced) == sorted(p.num_elements for p in written)


def test_nothing_that_a_trace_took_is_left_over() -> None:
    recorded = trace_program(training_of(FAMILIES["llama"]))
    live: dict[int, int] = {}
    for kind, first, second, _ in recorded.events:
        if kind == ALLOCATE:
            live[first] = second
        elif kind == FREE:
            del live[first]
        elif kind == GRADIENT:
            del live[second]
    # Every parameter's gradient went to the engine; scalars and positions may outlive the step.
    assert sum(live.values()) < 2**16
    gradients = [event[1] for event in recorded.events if event[0] == GRADIENT]
    assert sorted(gradients) == list(range(len(recorded.parameters)))


@pytest.mark.parametrize("model_type", ["qwen3", "gpt_neox", "phi"])
def test_a_family_without_a_written_program_is_traced(model_type: str) -> None:
    training = training_of(COMMON | {"model_type": model_type})
    assert families.is_traced(training)
    result = replay(training, families.program(training), workspace_bytes=HOPPER_WORKSPACE_BYTES)
    peak = result.peaks[Part.LOSS]
    assert peak.items["logits"] >= 10 * training.tokens * 8_000
    assert peak.items["activations"] > 0


def gathered(program: Program) -> list[tuple[int, list[int]]]:
    """Return the modules that start and end, by their sizes; a second start in a row adds none."""
    found: list[tuple[int, list[int]]] = []
    whole: set[tuple[int, ...]] = set()
    for kind, first, _, _ in program.events:
        if (kind == FETCH and first not in whole) or kind == RELEASE:
            found.append((kind, sorted(program.parameters[k].num_elements for k in first)))
        if kind == FETCH:
            whole.add(first)
        elif kind == RELEASE:
            whole.discard(first)
    return found


@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "checkpointed"])
@pytest.mark.parametrize("family", ["llama", "grouped queries", "mistral", "qwen2"])
def test_they_agree_about_when_modules_start_and_end(family: str, checkpointing: bool) -> None:
    settings = ModelSettings(activation_checkpointing=checkpointing)
    training = training_of(FAMILIES[family], settings=settings)
    traced, written = (
        [(kind, sizes) for kind, sizes in gathered(program) if sizes]
        for program in (trace_program(training), families.program(training))
    )
    if checkpointing:
        # A layer's last module starts before the layer runs again in one, after that in the other.
        traced, written = sorted(traced), sorted(written)
    assert traced == written


TRACED_FAMILIES: dict[str, dict[str, Any]] = {
    "gpt_neox": COMMON | {"model_type": "gpt_neox"},
    "bloom": COMMON | {"model_type": "bloom", "n_layer": 3},
    "starcoder2": COMMON | {"model_type": "starcoder2", "use_bias": True},
    "phi": COMMON | {"model_type": "phi"},
    "qwen3_moe": COMMON
    | {"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2}
    | {"moe_intermediate_size": 256},
}


@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "checkpointed"])
@pytest.mark.parametrize("family", TRACED_FAMILIES)
def test_a_module_in_backward_ends_with_the_last_of_its_gradients(
    family: str, checkpointing: bool
) -> None:
    """Biases and experts' second matrices come before the weights that they stand behind."""
    settings = ModelSettings(activation_checkpointing=checkpointing)
    recorded = trace_program(training_of(TRACED_FAMILIES[family], settings=settings))
    open_modules: set[tuple[int, ...]] = set()
    waiting: set[int] = set()
    ended: list[int] = []
    in_backward = False
    for kind, first, _, _ in recorded.events:
        in_backward = in_backward or (kind == ENTER and first is Part.BACKWARD)
        if kind == FETCH and first:
            # A checkpointed layer that runs again stops before its last module has ended.
            assert checkpointing or first not in open_modules
            open_modules.add(first)
        elif kind == GRADIENT:
            waiting.add(first)
        elif kind == RELEASE and first:
            open_modules.remove(first)
            # A checkpointed layer's forward ends without gradients.
            if waiting.intersection(first):
                assert waiting.issuperset(first)
                waiting.difference_update(first)
                ended += first
    assert in_backward
    assert not open_modules
    assert sorted(ended) == list(range(len(recorded.parameters)))


@pytest.mark.parametrize("family", TRACED_FAMILIES)
def test_a_deeper_model_gathers_no_more_at_once(family: str) -> None:
    """Stage 3 over so many ranks: what is whole at a time depends on modules, not on depth."""
    gathered = []
    for layers in (3, 12):
        training = training_of(
            TRACED_FAMILIES[family] | {"num_hidden_layers": layers, "n_layer": layers},
            {"stage": 3, "reduce_bucket_size": 100_000, "stage3_max_live_parameters": 1}
            | {"stage3_max_reuse_distance": 1, "stage3_param_persistence_threshold": 0},
            ranks=512,
            seq_len=16,
        )
        result = replay(training, trace_program(training), workspace_bytes=0)
        gathered.append(result.peaks[Part.BACKWARD].items["gathered_weights"])
    assert gathered[1] <= 1.1 * gathered[0]


def test_a_model_without_fused_attention_is_traced_with_its_own() -> None:
    training = training_of(COMMON | {"model_type": "bloom", "n_layer": 3})
    kept = replay(
        training, families.program(training), workspace_bytes=HOPPER_WORKSPACE_BYTES
    ).peaks[Part.LOSS]
    assert kept.items["activations"] > 3 * 2 * 2 * 8 * 512**2


def test_the_closed_form_reads_a_trace_too() -> None:
    training = training_of(COMMON | {"model_type": "qwen3"})
    assert weigh(training).layer > 0
    deeper = replace(training, model=replace(training.model, num_hidden_layers=5))
    assert summarise(training).kept_per_layer == summarise(deeper).kept_per_layer > 0


def test_what_cannot_be_traced_is_said_in_one_line() -> None:
    training = training_of(COMMON | {"model_type": "nobody"})
    with pytest.raises(WorkloadError, match="model_type nobody cannot be traced") as raised:
        trace_program(training)
    assert len(str(raised.value).splitlines()) == 1


def test_what_cannot_be_traced_brings_no_traceback_of_torch_s(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The positions end before the sequence does."""
    config = COMMON | {"model_type": "bert", "max_position_embeddings": 16}
    with pytest.raises(WorkloadError, match="model_type bert cannot be traced"):
        trace_program(training_of(config))
    assert not [record for record in caplog.records if record.name.startswith("torch")]


def test_frozen_parameters_are_not_traced() -> None:
    settings = ModelSettings(trainable_parameters=1_000)
    with pytest.raises(WorkloadError, match="frozen parameters are known for"):
        trace_program(training_of(COMMON | {"model_type": "qwen3"}, settings=settings))


def test_predictions_load_no_torch_until_a_trace_is_asked_for() -> None:
    code = (
        "import sys; import autotune.plan, autotune.predict.memory.predict;"
        "import autotune.predict.program.trace;"
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'deepspeed')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def large_tensors(program: Program, least_bytes: int = 100_000) -> list[tuple[int, ...]]:
    """Return what a program allocates, frees and hands over, small tensors left out.

    Tensors are numbered in the order in which they come; frees between two allocations are sorted,
    since their order has no effect.
    """
    number: dict[int, int] = {}
    found: list[tuple[int, ...]] = []
    freed: list[tuple[int, ...]] = []
    for kind, first, second, _ in program.events:
        if kind == ALLOCATE and second >= least_bytes:
            number[first] = len(number)
            found += [*sorted(freed), (ALLOCATE, number[first], second)]
            freed = []
        elif kind == FREE and first in number:
            freed.append((FREE, number[first]))
        elif kind == GRADIENT and second in number:
            found += [*sorted(freed), (GRADIENT, first, number[second])]
            freed = []
    return found + sorted(freed)


@pytest.mark.parametrize("family", ["llama", "grouped queries", "tied", "mixtral", "gpt2"])
def test_hand_written_programs_follow_the_code_tensor_by_tensor(family: str) -> None:
    """Fragmentation, and so what fits under a ceiling, depends on the order."""
    training = training_of(FAMILIES[family], train_micro_batch_size_per_gpu=4)
    # Above the rotary tables: those of the last layer go a few operations earlier than here.
    least = 600_000
    assert large_tensors(families.program(training), least) == large_tensors(
        trace_program(training), least
    )
