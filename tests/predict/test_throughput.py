import pytest

from autotune.hardware import find_device
from autotune.predict.throughput import predict_throughput
from tests.predict.jobs import job
from tests.predict.rows import H200, rows


def test_nine_in_ten_measured_runs_lie_in_the_interval() -> None:
    inside = []
    for row in rows():
        if not row.completed:
            continue
        local_ranks = 1 if row.emulated else 2
        predicted = predict_throughput(row.training, H200, local_ranks=local_ranks)
        # An emulated rank sends nothing.
        silent = predicted.items["communication"] if row.emulated else 0.0
        scale = (predicted.step_s - silent) / predicted.step_s
        times = row.measured.get("steady_step_s") or min(
            row.measured["step_s"].split()[1:], key=float
        )
        ranks = row.training.world_size
        rate = ranks * row.training.accumulation * row.training.tokens / float(times)
        low, high = predicted.tokens_per_s_low / scale, predicted.tokens_per_s_high / scale
        inside.append(low <= rate <= high)
    assert sum(inside) / len(inside) >= 0.9


def test_items_add_up_to_the_step() -> None:
    predicted = predict_throughput(job({"stage": 3}), H200, local_ranks=8)
    assert sum(predicted.items.values()) == pytest.approx(predicted.step_s)
    assert predicted.tokens_per_s_low < predicted.tokens_per_s < predicted.tokens_per_s_high


def test_offload_costs_time_and_local_ranks_share_the_cpu() -> None:
    plain = predict_throughput(job({"stage": 2}), H200, local_ranks=8)
    zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}}
    away = predict_throughput(job(zero), H200, local_ranks=8)
    apart = predict_throughput(job(zero), H200, local_ranks=1)
    assert plain.items["optimizer"] < apart.items["optimizer"] < away.items["optimizer"]


def test_a_faster_device_is_faster() -> None:
    training = job({"stage": 2}, model="7b")
    rates = [
        predict_throughput(training, find_device(name), local_ranks=8).tokens_per_s
        for name in ("t4", "a100-80gb", "h100", "b200")
    ]
    assert rates == sorted(rates)
