"""Experts in a trace: which weights they are, what they compute, and who holds them."""

from typing import Any

import pytest

from autotune.predict.memory.replay import replay
from autotune.predict.program import families
from autotune.predict.program.events import GRADIENT
from autotune.predict.program.trace import trace_program
from autotune.predict.throughput.module_visits import list_visits
from autotune.predict.throughput.predict import model_flops_per_token
from autotune.predict.training_job import ModelSettings, Training
from tests.predict.rows import H200
from tests.predict.traced import COMMON, training_of

EXPERTS: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": 8},
    "qwen3_moe": {"num_experts": 8, "moe_intermediate_size": 1_408, "head_dim": 64},
    "deepseek_v2": {"n_routed_experts": 8, "moe_intermediate_size": 1_408}
    | {"first_k_dense_replace": 1, "q_lora_rank": None, "n_shared_experts": 1},
}


def with_experts(family: str, **keys: Any) -> Training:
    config = COMMON | {"model_type": family, "num_experts_per_tok": 2} | EXPERTS[family]
    return training_of(config, {"stage": 1}, **keys)


@pytest.mark.parametrize("family", EXPERTS)
def test_routed_experts_are_distinguished_from_other_weights(family: str) -> None:
    """Not among them: the router, shared experts, and the MLP of a layer without experts."""
    parameters = trace_program(with_experts(family)).parameters
    layers = range(1 if family == "deepseek_v2" else 0, 3)
    assert [p.name for p in parameters if p.expert] == [
        f"model.layers.{layer}.mlp.experts.{name}"
        for layer in layers
        for name in ("gate_up_proj", "down_proj")
    ]


@pytest.mark.parametrize("ways", [1, 2, 4])
def test_they_agree_about_experts_that_ranks_share_out(ways: int) -> None:
    section = {"enabled": True, "autoep_size": ways}
    training = with_experts("mixtral", expert_parallel=section, seq_len=64)
    traced, written = (
        replay(training, program, workspace_bytes=0).peak_allocated_bytes
        for program in (trace_program(training), families.program(training))
    )
    assert traced == pytest.approx(written, rel=0.005)


def test_traced_experts_compute_for_the_tokens_that_visit_them() -> None:
    """The two models differ in a few norms only; one of them is written down."""
    traced, written = with_experts("qwen3_moe"), with_experts("mixtral")
    assert families.is_traced(traced)
    assert not families.is_traced(written)
    assert model_flops_per_token(traced) == pytest.approx(model_flops_per_token(written), rel=0.001)
    seconds, expected = (
        sum(visit.product_s for visit in list_visits(training, H200).visits)
        for training in (traced, written)
    )
    assert seconds == pytest.approx(expected)


@pytest.mark.parametrize("checkpointing", [False, True], ids=["kept", "checkpointed"])
def test_a_routers_bias_that_no_gradient_trains_is_not_trained(checkpointing: bool) -> None:
    config = COMMON | {"model_type": "ernie4_5_moe", "moe_num_experts": 4, "moe_k": 2}
    training = training_of(
        config | {"moe_intermediate_size": 256},
        seq_len=16,
        settings=ModelSettings(activation_checkpointing=checkpointing),
    )
    program = trace_program(training)
    frozen = [p.name for p in program.parameters if not p.trainable]
    assert frozen
    assert all(name.endswith("e_score_correction_bias") for name in frozen)
    with_gradient = {event[1] for event in program.events if event[0] == GRADIENT}
    assert with_gradient == {k for k, p in enumerate(program.parameters) if p.trainable}
