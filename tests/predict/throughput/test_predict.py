from dataclasses import replace
from typing import Any

import pytest

from autotune.job.device import find_device
from autotune.job.model_shape import PRESETS, shape_from_hf_config
from autotune.predict.throughput import SpeedSurroundings, Throughput, predict_throughput
from autotune.predict.throughput.constants import RATES
from autotune.predict.throughput.predict import model_flops_per_token, step_items
from autotune.predict.training_job import ModelSettings, Training
from tests.predict.jobs import job, small_llama
from tests.predict.rows import H200

NODE = SpeedSurroundings.of(H200, local_ranks=8)
CHECKPOINTED = ModelSettings(activation_checkpointing=True)


def _predict(training: Training, around: SpeedSurroundings = NODE) -> Throughput:
    return predict_throughput(training, around)


def test_items_add_up_to_the_step() -> None:
    predicted = _predict(job({"stage": 3}))
    assert sum(predicted.items.values()) == pytest.approx(predicted.step_s)
    assert predicted.tokens_per_s_low < predicted.tokens_per_s < predicted.tokens_per_s_high
    assert predicted.to_json()["mfu"] == predicted.mfu


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_accumulation_repeats_the_micro_step_and_not_the_update(stage: int) -> None:
    one, four = (
        step_items(
            job({"stage": stage}, gradient_accumulation_steps=n, train_batch_size=8 * n), NODE
        )
        for n in (1, 4)
    )
    # Below stage 2 the last micro step alone reduces, and all but the first add up.
    added = 0.1 if stage < 2 else 1e-6
    assert four["compute"] == pytest.approx(4 * one["compute"], rel=added)
    assert four["optimizer"] == one["optimizer"]
    reduced_once = stage < 2
    assert (four["communication"] < 2 * one["communication"]) == reduced_once


def test_recomputation_costs_most_of_a_forward() -> None:
    long: dict[str, Any] = {"train_micro_batch_size_per_gpu": 8}
    plain = step_items(job({"stage": 2}, model="7b", **long), NODE)["compute"]
    again = step_items(job({"stage": 2}, model="7b", settings=CHECKPOINTED, **long), NODE)[
        "compute"
    ]
    assert 1.2 < again / plain < 1.34


def test_offload_costs_time_and_local_ranks_share_the_cpu() -> None:
    plain = _predict(job({"stage": 2}))
    training = job({"stage": 2, "offload_optimizer": {"device": "cpu"}})
    away, apart = _predict(training), _predict(training, replace(NODE, local_ranks=1))
    assert plain.items["optimizer"] < apart.items["optimizer"] < away.items["optimizer"]
    nvme = job({"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/nvme"}})
    host = job({"stage": 3, "offload_optimizer": {"device": "cpu"}})
    assert _predict(nvme).items["optimizer"] > _predict(host).items["optimizer"]


def test_a_faster_device_is_faster() -> None:
    training = job({"stage": 2}, model="7b", train_micro_batch_size_per_gpu=4)
    rates = [
        _predict(training, SpeedSurroundings.of(find_device(name), local_ranks=8)).tokens_per_s
        for name in ("t4", "a100-80gb", "h100", "b200")
    ]
    assert rates == sorted(rates)


def test_a_rank_alone_sends_nothing() -> None:
    for stage in (0, 1, 2, 3):
        assert step_items(job({"stage": stage}), NODE.alone())["communication"] == 0
        assert step_items(job({"stage": stage}), NODE)["communication"] > 0
        assert step_items(job({"stage": stage}, ranks=1), NODE)["communication"] == 0


def test_overlap_hides_reductions_behind_backward() -> None:
    far = SpeedSurroundings.of(H200, local_ranks=1, network="ethernet-100g")
    exposed, hidden = (
        step_items(job({"stage": 2, "overlap_comm": overlap, "reduce_bucket_size": 50_000_000},
                       train_micro_batch_size_per_gpu=16), far)["communication"]
        for overlap in (False, True)
    )  # fmt: skip
    assert hidden < exposed


def test_prefetching_hides_gathers_and_few_live_parameters_repeat_them() -> None:
    usual, demand, few = (
        _predict(job({"stage": 3} | zero, model="7b", train_micro_batch_size_per_gpu=4,
                     settings=CHECKPOINTED)).step_s
        for zero in (
            {},
            {"stage3_prefetch_bucket_size": 0},
            {"stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0},
        )
    )  # fmt: skip
    assert usual < demand
    assert usual < few


def test_everything_kept_alive_is_gathered_once() -> None:
    """Stage 3 releases nothing that comes again within `max_reuse_distance`."""
    wide = {"stage": 3, "stage3_max_reuse_distance": 10**10, "stage3_max_live_parameters": 10**10}
    training = job(wide, model="7b", settings=CHECKPOINTED)
    kept = step_items(training, NODE)
    usual = step_items(job({"stage": 3}, model="7b", settings=CHECKPOINTED), NODE)
    assert kept["launches"] + kept["communication"] < usual["launches"] + usual["communication"]


def test_many_ranks_cost_stage_3_its_loops() -> None:
    launches = [
        step_items(job({"stage": 3}, ranks=ranks), NODE.alone())["launches"]
        for ranks in (2, 64, 512)
    ]
    assert launches == sorted(launches)
    assert launches[2] > 3 * launches[0]


def test_hpz_gathers_again_within_the_node() -> None:
    far = SpeedSurroundings.of(H200, local_ranks=8, network="ethernet-10g")
    usual, secondary = (
        step_items(job({"stage": 3} | zero, model="7b", ranks=64), far)["communication"]
        for zero in ({}, {"zero_hpz_partition_size": 8})
    )
    assert secondary < 0.8 * usual


def test_hpz_over_several_nodes_gathers_between_them() -> None:
    far = SpeedSurroundings.of(H200, local_ranks=8, network="ethernet-10g")
    usual, two_nodes, all_nodes = (
        step_items(job({"stage": 3, "zero_hpz_partition_size": n}, model="7b", ranks=64), far)
        for n in (1, 16, 64)
    )
    assert all_nodes == usual
    assert two_nodes["communication"] > 0.8 * usual["communication"]


def test_mfu_counts_the_model_and_no_recomputation() -> None:
    plain, again = (
        _predict(job({"stage": 2}, model="7b", train_micro_batch_size_per_gpu=4, settings=settings))
        for settings in (None, CHECKPOINTED)
    )
    for predicted in (plain, again):
        flops = model_flops_per_token(job(model="7b"))
        per_gpu = predicted.tokens_per_s * flops / 8
        assert predicted.tflops_per_gpu == pytest.approx(per_gpu / 1e12)
        assert predicted.mfu == pytest.approx(per_gpu / H200.bf16_flops)
    assert again.mfu < plain.mfu


def test_model_flops_are_palm_s() -> None:
    shape = PRESETS["7b"]
    attention = 12 * shape.num_hidden_layers * shape.hidden_size * 1_024
    assert model_flops_per_token(job(model="7b")) == 6 * shape.num_parameters + attention


def test_of_experts_those_that_a_token_visits_count() -> None:
    config = dict(small_llama().hf_config) | {
        "model_type": "mixtral",
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    }
    sparse = shape_from_hf_config(config, name="sparse", where="test")
    dense = small_llama()
    ratio = model_flops_per_token(job(model=sparse)) / model_flops_per_token(job(model=dense))
    assert 1.2 < ratio < 2
    assert _predict(job({"stage": 2}, model=sparse)).tokens_per_s > 0


def test_what_is_unknown_widens_the_interval() -> None:
    def width(training: Training, around: SpeedSurroundings = NODE) -> float:
        predicted = _predict(training, around)
        return predicted.tokens_per_s_high / predicted.tokens_per_s

    plain = job({"stage": 2}, model="7b", train_micro_batch_size_per_gpu=4)
    other = SpeedSurroundings.of(find_device("mi300x"), local_ranks=8)
    assert width(plain, other) > width(plain)
    away = job(
        {"stage": 2, "offload_optimizer": {"device": "cpu"}},
        model="7b",
        train_micro_batch_size_per_gpu=4,
    )
    assert width(away) > width(plain)
    assert width(away, replace(NODE, cpu_adam_elements_per_s=3e8)) < width(away)


def test_a_small_micro_batch_waits_for_the_host() -> None:
    items = step_items(job({"stage": 3}, model="1.3b", seq_len=128), NODE)
    assert items["launches"] > items["compute"]


def _host_bound(zero: dict[str, Any], settings: ModelSettings | None = None) -> float:
    """Return the seconds that the device waits for the host at one short sequence."""
    training = job(zero, model="1.3b", seq_len=128, settings=settings)
    return step_items(training, NODE)["launches"]


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_buckets_smaller_than_a_parameter_cost_the_host_a_reduction_each(stage: int) -> None:
    num_matrices = 24 * 7
    usual, small = (
        _host_bound({"stage": stage, "reduce_bucket_size": size}) for size in (500_000_000, 2)
    )
    assert small - usual > num_matrices * RATES.call_s


@pytest.mark.parametrize("stage", [1, 3])
def test_checkpointing_costs_the_host_more_than_the_kernels_that_run_again(stage: int) -> None:
    plain, again = (_host_bound({"stage": stage}, s) for s in (None, CHECKPOINTED))
    assert again - plain > 24 * RATES.checkpoint_s


def test_stage_1_leaves_gradients_alone_until_the_last_micro_step() -> None:
    def launches(stage: int, accumulation: int) -> float:
        batches: dict[str, Any] = {
            "gradient_accumulation_steps": accumulation,
            "train_batch_size": 8 * accumulation,
        }
        training = job({"stage": stage}, model="1.3b", seq_len=128, **batches)
        return step_items(training, NODE)["launches"]

    more = {stage: launches(stage, 2) - launches(stage, 1) for stage in (1, 2)}
    assert more[1] < 0.9 * more[2]


def test_gradients_of_an_offloaded_optimizer_cross_to_the_host_and_back_while_they_add_up() -> None:
    zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    one, four = (
        step_items(job(zero, gradient_accumulation_steps=n, train_batch_size=8 * n), NODE.alone())
        for n in (1, 4)
    )
    assert four["communication"] > 2 * one["communication"] > 0


def test_weights_on_the_host_of_an_optimizer_on_the_device_cost_pageable_copies() -> None:
    cpu = {"device": "cpu"}
    plain, weights, both = (
        step_items(job({"stage": 3} | zero), NODE)["optimizer"]
        for zero in ({}, {"offload_param": cpu}, {"offload_param": cpu, "offload_optimizer": cpu})
    )
    assert weights > 2 * plain
    assert weights > both


def test_an_emulated_rank_has_its_host_to_itself() -> None:
    emulated = NODE.emulated(num_threads=8)
    away = job({"stage": 2, "offload_optimizer": {"device": "cpu"}})
    assert step_items(away, emulated)["optimizer"] < step_items(away, NODE)["optimizer"]
    small = job({"stage": 3, "reduce_bucket_size": 2}, model="1.3b", seq_len=128)
    assert step_items(small, emulated)["launches"] == step_items(small, NODE)["launches"]
    assert emulated.real() == replace(NODE, cpu_threads=8)


def test_a_probe_slows_down_the_whole_offloaded_step_of_an_emulated_rank() -> None:
    probed = replace(NODE, cpu_adam_elements_per_s=5e8)
    away = job({"stage": 2, "offload_optimizer": {"device": "cpu"}})
    real, emulated = (
        step_items(away, around)["optimizer"] for around in (probed, probed.emulated(num_threads=8))
    )
    assert step_items(away, NODE.emulated(num_threads=8))["optimizer"] < emulated
    assert emulated == pytest.approx(real)


def test_few_threads_make_a_slower_optimizer_step() -> None:
    away = job({"stage": 2, "offload_optimizer": {"device": "cpu"}})
    few, many = (step_items(away, NODE.emulated(num_threads=n))["optimizer"] for n in (1, 8))
    assert few > many
    alone = replace(NODE, local_ranks=1)
    few, many = (step_items(away, replace(alone, cpu_threads=n))["optimizer"] for n in (1, 8))
    assert few > 3 * many


@pytest.mark.parametrize(("threads", "measured_s"), [(1, 3.26), (4, 1.41), (8, 0.93), (16, 0.83)])
def test_measured_steps_by_threads_are_within_a_quarter(threads: int, measured_s: float) -> None:
    """1.3b, stage 2, one H200, 16 cores: nine tenths of the first is the optimizer."""
    away = job(
        {"stage": 2, "offload_optimizer": {"device": "cpu"}},
        ranks=1,
        seq_len=2_048,
        train_micro_batch_size_per_gpu=4,
    )
    around = SpeedSurroundings.of(H200, local_ranks=1, cpu_threads=threads)
    assert _predict(away, around).step_s == pytest.approx(measured_s, rel=0.25)


def test_threads_do_not_pass_what_the_memory_of_a_node_gives() -> None:
    away = job({"stage": 2, "offload_optimizer": {"device": "cpu"}})
    assert replace(NODE, cpu_threads=64).adam_elements_per_s(away) == NODE.adam_elements_per_s(away)


def test_a_probe_with_more_threads_is_no_word_on_fewer() -> None:
    away = job({"stage": 2, "offload_optimizer": {"device": "cpu"}})
    adam = {"elements_per_s": 2e9, "num_threads": 16.0}
    probe = {"local_ranks": 8, "collectives": [], "cpu_adam": adam}

    def around(threads: int | None) -> SpeedSurroundings:
        return SpeedSurroundings.of(H200, local_ranks=8, probe=probe, cpu_threads=threads)

    assert around(16).adam_elements_per_s(away) == around(None).adam_elements_per_s(away) == 2e9
    assert around(1).adam_elements_per_s(away) < 1e9
    assert around(16).cpu_threads_are_probed
    assert not around(1).cpu_threads_are_probed


def test_a_frozen_base_needs_no_weight_gradients() -> None:
    batch: dict[str, Any] = {"train_micro_batch_size_per_gpu": 8}
    adapters = ModelSettings(trainable_parameters=4_000_000)
    whole = step_items(job({"stage": 2}, model="7b", **batch), NODE)
    lora = step_items(job({"stage": 2}, model="7b", settings=adapters, **batch), NODE)
    assert lora["compute"] < 0.85 * whole["compute"]
    assert lora["communication"] < 0.1 * whole["communication"]
    assert lora["optimizer"] < 0.6 * whole["optimizer"]


def test_tensor_and_pipeline_parallel_ranks_share_the_work() -> None:
    training = job({"stage": 1}, model="7b", gradient_accumulation_steps=32, train_batch_size=256)
    alone = step_items(training, NODE)
    tensor = step_items(training, replace(NODE, tensor_parallel=4))
    assert tensor["compute"] < 0.5 * alone["compute"]
    assert tensor["communication"] > alone["communication"]
    pipeline = step_items(training, replace(NODE, pipeline_stages=4))
    assert alone["compute"] / 4 < pipeline["compute"] < alone["compute"] / 2.5
