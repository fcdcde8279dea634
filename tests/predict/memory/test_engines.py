"""What each ZeRO stage holds, against the sizes that DeepSpeed's source implies.

P is the number of parameters and N the ranks; sizes in bytes.
"""

from typing import Any

import pytest

from autotune.job.model_shape import PRESETS
from autotune.predict.memory.replay import Replayed, replay
from autotune.predict.program.families import program
from autotune.predict.program.items import Part
from autotune.predict.training_job import ModelSettings
from tests.predict.jobs import HOPPER_WORKSPACE_BYTES, job, replayed, small_llama

P = PRESETS["1.3b"].num_parameters
N = 8
BUCKET = 500_000_000


def at_step(result: Replayed) -> dict[str, int]:
    return result.peaks[Part.STEP].items


@pytest.mark.parametrize(
    ("zero", "keys", "expected"),
    [
        ({"stage": 1}, {}, 2 * P + 4 * P / N),
        ({"stage": 2}, {}, 2 * P + 4 * P / N),
        ({"stage": 3}, {}, 8 * P / N + 2 * BUCKET),
        ({"stage": 3, "offload_optimizer": {"device": "cpu"}}, {}, 2 * P / N + 2 * BUCKET),
        (
            {
                "stage": 3,
                "offload_optimizer": {"device": "cpu"},
                "offload_param": {"device": "cpu"},
            },
            {},
            2 * BUCKET,
        ),
        ({"stage": 0}, {}, 2 * P + 12 * P),
        ({"stage": 2}, {"bf16": {}}, 4 * P + 4 * P / N),
        ({"stage": 3}, {"bf16": {}}, 4 * P / N + 8 * P / N + 4 * BUCKET),
        ({"stage": 1}, {"data_types": {"grad_accum_dtype": "fp32"}}, 6 * P + 4 * P / N),
        ({"stage": 3}, {"data_types": {"grad_accum_dtype": "fp32"}}, 10 * P / N + 2 * BUCKET),
        ({"stage": 3, "contiguous_gradients": False}, {}, 8 * P / N),
    ],
)
def test_allocated_after_init(zero: dict[str, Any], keys: dict[str, Any], expected: float) -> None:
    assert replayed(job(zero, **keys)).init_allocated_bytes == pytest.approx(expected, rel=0.004)


def test_stage_0_in_fp32_starts_with_the_weights_alone() -> None:
    # One tensor each, so the allocator's blocks add more than a per cent.
    allocated = replayed(job({"stage": 0}, bf16={})).init_allocated_bytes
    assert 4 * P <= allocated <= 1.02 * 4 * P


def test_stages_1_and_2_with_offload_keep_weights_and_a_buffer() -> None:
    result = replayed(job({"stage": 2, "offload_optimizer": {"device": "cpu"}}))
    largest = 32_000 * 2_048
    assert result.init_allocated_bytes == pytest.approx(2 * P + 2 * largest, rel=0.002)
    assert "moments" not in at_step(result)


@pytest.mark.parametrize(
    ("optimizer", "per_parameter"),
    [("AdamW", 8), ("Lion", 4), ("SGD", 0)],
)
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_moments_join_at_the_first_step(stage: int, optimizer: str, per_parameter: int) -> None:
    items = at_step(replayed(job({"stage": stage}, optimizer={"type": optimizer})))
    assert items.get("moments", 0) == pytest.approx(per_parameter * P / N, rel=0.002)


def test_stage_1_keeps_all_gradients_and_stage_2_does_not() -> None:
    first, second = (replayed(job({"stage": stage})).peaks[Part.REDUCTION] for stage in (1, 2))
    assert first.items["gradients"] > 0.5 * 2 * P
    assert second.items.get("gradients", 0) < 0.1 * 2 * P


@pytest.mark.parametrize("stage", [1, 2])
def test_overlap_doubles_the_bucket_of_stages_1_and_2(stage: int) -> None:
    for overlap, number in ((False, 1), (True, 2)):
        peaks = replayed(job({"stage": stage, "overlap_comm": overlap})).peaks
        assert peaks[Part.BACKWARD].items["reduce_bucket"] == number * 2 * BUCKET


def test_without_contiguous_gradients_there_is_no_bucket() -> None:
    for stage in (1, 2):
        result = replayed(job({"stage": stage, "contiguous_gradients": False}))
        assert all("reduce_bucket" not in peak.items for peak in result.peaks.values())


def test_offload_forces_the_bucket() -> None:
    zero = {"stage": 2, "contiguous_gradients": False, "offload_optimizer": {"device": "cpu"}}
    assert "reduce_bucket" in replayed(job(zero)).peaks[Part.BACKWARD].items


def test_wide_sums_at_stage_2_replace_the_flat_gradients() -> None:
    training = job({"stage": 2}, data_types={"grad_accum_dtype": "fp32"})
    items = at_step(replayed(training))
    assert items["gradient_partition"] == pytest.approx(4 * P / N, rel=0.002)
    assert "step_gradients" not in items


def test_a_ratio_keeps_sub_groups_on_the_device() -> None:
    def masters(ratio: float) -> int:
        offload = {"device": "cpu", "ratio": ratio}
        zero = {"stage": 3, "sub_group_size": 10_000_000, "offload_optimizer": offload}
        return at_step(replayed(job(zero))).get("master_weights", 0)

    assert masters(1.0) == 0
    assert masters(0.5) == pytest.approx(4 * P / N / 2, rel=0.1)
    assert masters(0.0) == pytest.approx(4 * P / N, rel=0.002)


def test_hpz_keeps_a_second_copy_within_the_group() -> None:
    peaks = replayed(job({"stage": 3, "zero_hpz_partition_size": 4}, ranks=16)).peaks
    # Each parameter leaves its copy when it is first released: all have by the end of backward.
    assert peaks[Part.REDUCTION].items["secondary_weights"] == pytest.approx(2 * P / 4, rel=0.01)


def test_quantised_gathers_need_a_byte_an_element_more_in_transit() -> None:
    plain, quantised = (
        replayed(job({"stage": 3, "zero_quantized_weights": flag})) for flag in (False, True)
    )
    assert quantised.peak_reserved_bytes >= plain.peak_reserved_bytes


def test_each_thread_that_multiplies_keeps_a_cublas_workspace() -> None:
    peaks = replayed(job({"stage": 2})).peaks
    assert peaks[Part.FORWARD].items["workspace"] == 2 * HOPPER_WORKSPACE_BYTES
    assert peaks[Part.STEP].items["workspace"] == 2 * HOPPER_WORKSPACE_BYTES


def test_one_rank_gathers_nothing() -> None:
    peaks = replayed(job({"stage": 3}, ranks=1)).peaks
    assert all("gathered_weights" not in peak.items for peak in peaks.values())


def test_live_parameters_bound_what_a_prefetch_keeps() -> None:
    def gathered(live: int) -> int:
        zero = {"stage": 3, "stage3_max_live_parameters": live, "stage3_max_reuse_distance": live}
        return replayed(job(zero, model="7b")).peaks[Part.LOSS].items["gathered_weights"]

    assert gathered(1_000_000_000) == pytest.approx(2 * 1_000_000_000, rel=0.1)
    assert gathered(100_000_000) < 0.5 * gathered(1_000_000_000)


def test_frozen_weights_have_no_states() -> None:
    settings = ModelSettings(trainable_parameters=10_000_000)
    for stage in (1, 2, 3):
        items = at_step(replayed(job({"stage": stage}, settings=settings)))
        assert items["moments"] == pytest.approx(8 * 10_000_000 / N, rel=0.1)
        share = 2 * P / (N if stage == 3 else 1)
        assert items["frozen_weights"] == pytest.approx(share, rel=0.01)


def test_training_only_the_top_keeps_less_than_adapters() -> None:
    adapters, top = (
        replayed(
            job(
                {"stage": 2},
                settings=ModelSettings(trainable_parameters=60_000_000, trained_on_top=on_top),
            )
        ).peaks[Part.LOSS]
        for on_top in (False, True)
    )
    assert top.items["activations"] < 0.3 * adapters.items["activations"]


def test_fewer_top_parameters_than_a_layer_has_are_not_a_whole_layer() -> None:
    settings = ModelSettings(trainable_parameters=4_000_000, trained_on_top=True)
    items = at_step(replayed(job({"stage": 2}, model="7b", settings=settings)))
    assert 0 < items["moments"] <= 8 * 4_000_000 / N


def test_tied_embeddings_are_one_parameter_with_one_gradient() -> None:
    shape = small_llama(tie_word_embeddings=True, vocab_size=64_000)
    tied, untied = (
        replayed(job({"stage": 2}, model=model, ranks=1))
        for model in (shape, small_llama(vocab_size=64_000))
    )
    table = 64_000 * 512
    saved = untied.init_allocated_bytes - tied.init_allocated_bytes
    assert saved == pytest.approx(6 * table, rel=0.03)
    # The head's gradient waits for the embedding's until backward has passed every layer.
    assert tied.peaks[Part.BACKWARD].items["gradients"] >= 2 * table


def test_experts_are_shared_out_before_they_are_sharded() -> None:
    shape = small_llama(model_type="mixtral", num_local_experts=8, num_experts_per_tok=2)
    experts = 4 * 8 * 3 * 512 * 1_408
    dense = 2 * 4_000 * 512 + 4 * 4 * 512 * 512
    together = replayed(job({"stage": 2}, model=shape))
    apart = replayed(
        job({"stage": 2}, model=shape, expert_parallel={"enabled": True, "autoep_size": 4})
    )
    for result, held, states in (
        (together, experts, experts / 8),
        (apart, experts / 4, experts / 4 / 2),
    ):
        expected = 2 * (dense + held) + 4 * (dense / 8 + states)
        assert result.init_allocated_bytes == pytest.approx(expected, rel=0.03)


def test_eager_attention_is_quadratic_and_fused_attention_is_not() -> None:
    def kept(attention: str, seq_len: int) -> int:
        settings = ModelSettings(attn_implementation=attention)
        training = job({"stage": 2}, model=small_llama(), seq_len=seq_len, settings=settings)
        return replayed(training).peaks[Part.LOSS].items["activations"]

    assert kept("sdpa", 4_096) == pytest.approx(2 * kept("sdpa", 2_048), rel=0.01)
    growth = kept("eager", 4_096) - kept("sdpa", 4_096)
    assert growth == pytest.approx(6 * 4 * 8 * 4_096**2, rel=0.05)


@pytest.mark.parametrize("stage", [1, 2])
def test_accumulation_carries_gradients_into_the_next_forward(stage: int) -> None:
    once, twice = (
        replayed(job({"stage": stage}, gradient_accumulation_steps=steps)).peaks[Part.FORWARD]
        for steps in (1, 2)
    )
    carried = 2 * P if stage == 1 else 2 * P / N
    assert twice.allocated_bytes - once.allocated_bytes == pytest.approx(
        carried + (2 * BUCKET if stage == 1 else 0), rel=0.12
    )


def test_a_third_micro_step_needs_no_more_than_the_second() -> None:
    for zero in ({"stage": 1}, {"stage": 2}, {"stage": 3}):
        two, eight = (
            replayed(job(zero, gradient_accumulation_steps=steps)).peak_allocated_bytes
            for steps in (2, 8)
        )
        assert two == eight


@pytest.mark.parametrize("model", ["gpt2", "gpt2-xl", "tiny", "34b"])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_every_family_frees_all_that_a_step_took(model: str, stage: int) -> None:
    result = replayed(job({"stage": stage}, model=model, seq_len=128))
    items = at_step(result)
    assert not {"activations", "activation_gradients", "logits"} & set(items)


def test_weights_are_flattened_on_the_host_where_the_card_has_no_room_for_two_copies() -> None:
    training = job({"stage": 2, "offload_optimizer": {"device": "cpu"}})
    card_bytes = 3 * P
    roomy = replayed(training)
    assert roomy.peaks[Part.INIT].allocated_bytes == pytest.approx(4 * P, rel=0.02)
    tight = replay(
        training,
        program(training),
        workspace_bytes=HOPPER_WORKSPACE_BYTES,
        card_bytes=card_bytes,
    )
    assert tight.peaks[Part.INIT].allocated_bytes < card_bytes
    assert tight.init_allocated_bytes == pytest.approx(roomy.init_allocated_bytes, rel=0.001)


def test_a_limit_below_the_card_does_not_move_the_flattening() -> None:
    """The driver is asked, and it does not know of the memory fraction."""
    training = job({"stage": 2, "offload_optimizer": {"device": "cpu"}})
    result = replay(
        training,
        program(training),
        workspace_bytes=HOPPER_WORKSPACE_BYTES,
        limit_bytes=3 * P,
        card_bytes=80 * P,
    )
    assert result.ran_out is not None
    assert result.ran_out.part is Part.INIT
