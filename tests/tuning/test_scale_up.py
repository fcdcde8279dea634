"""The predictions for the exported config on `--target-gpus`."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.job.ceiling import GIB
from autotune.job.model_shape import load_model_shape
from autotune.job.workload import Workload
from autotune.predict.memory.predict import Surroundings
from autotune.predict.speed_calibration import HOSTS, SpeedCalibration, TimedTrial
from autotune.predict.throughput import SpeedSurroundings, predict_throughput
from autotune.report.summary import summarize
from autotune.search.speed_model import SpeedModel
from autotune.space import load_space
from autotune.study.candidate import Candidate, training_of
from autotune.tuning.scale_up import MATTERS, Target, _moved, _Neighbours, predict_target
from tests.job.workloads import resolve_workload
from tests.search.simulated import H100, Simulation, workload_7b

CEILING_BYTES = 24 * GIB


def _workload(gpus: int, *, global_batch_size: int | None = None) -> Workload:
    shape = load_model_shape("7b")
    fewer = {**shape.hf_config, "num_hidden_layers": 2}
    return resolve_workload(
        replace(shape, num_hidden_layers=2, hf_config=fewer),
        gpus=gpus,
        base={},
        global_batch_size=global_batch_size,
        device_kind="cuda",
    )


def _target(gpus: int, *, network: str | None = None, **given: Any) -> Target:
    workload = _workload(gpus, **given)
    return Target(
        workload=workload,
        space=load_space("zero").bind(workload, {}),
        base={},
        memory=Surroundings(device=H100, ceiling_bytes=CEILING_BYTES, local_ranks=8),
        speed=SpeedSurroundings.of(H100, local_ranks=8, network=network),
        here=SpeedModel(
            workload=_workload(8), surroundings=SpeedSurroundings.of(H100, local_ranks=8)
        ),
    )


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return Simulation(workload=workload_7b(num_layers=2), ceiling_bytes=CEILING_BYTES)


@pytest.fixture(scope="module")
def exported(simulation: Simulation) -> Candidate:
    return simulation.point(stage=3, mb=2, ckpt=False, offload="none", overlap_comm=False)


def test_the_same_config_is_predicted_on_more_ranks(exported: Candidate) -> None:
    target = _target(64)
    found = predict_target(target, exported, seed=1)
    assert found["evaluator"] == "modelled"
    assert found["gpus"] == 64
    assert found["problem"] is None
    config = found["ds_config"]
    assert config["zero_optimization"] == exported.ds_config["zero_optimization"]
    assert config["train_micro_batch_size_per_gpu"] == 2
    assert config["train_batch_size"] == target.workload.global_batch_size
    plain = predict_throughput(
        training_of(replace(exported, ds_config=config), target.workload), target.speed
    )
    assert found["tokens_per_s"]["value"] == pytest.approx(plain.tokens_per_s)
    assert found["tokens_per_s"]["low"] < plain.tokens_per_s < found["tokens_per_s"]["high"]
    assert found["memory"]["fits"]
    assert 0 < found["memory"]["peak_bytes"] < CEILING_BYTES
    json.dumps(found, allow_nan=False)


def test_the_study_s_trials_correct_it(exported: Candidate) -> None:
    plain = predict_target(_target(64), exported, seed=1)
    trial = TimedTrial(measured=50.0, predicted=(100.0,) * len(HOSTS))
    calibration = SpeedCalibration(trials=(trial,) * 9)
    found = predict_target(replace(_target(64), speed_calibration=calibration), exported, seed=1)
    ratio = found["tokens_per_s"]["value"] / plain["tokens_per_s"]["value"]
    assert ratio == pytest.approx(calibration.factor)
    assert found["corrected_by_trials"] == 9
    # They say nothing of the host, so it is one factor for all, and no key moves for it.
    assert found["moves"] == plain["moves"]


def test_trials_that_agree_make_nothing_surer_on_more_ranks(exported: Candidate) -> None:
    trial = TimedTrial(measured=100.0, predicted=(100.0,) * len(HOSTS))
    calibration = SpeedCalibration(trials=(trial,) * 30)
    found = predict_target(replace(_target(64), speed_calibration=calibration), exported, seed=1)
    plain = predict_target(_target(64), exported, seed=1)
    assert found["tokens_per_s"] == pytest.approx(plain["tokens_per_s"])


def test_the_ratio_on_the_study_s_own_ranks_is_corrected_too(exported: Candidate) -> None:
    """A slow host makes stage 3 slower than the config it is compared with."""
    target = _target(256, network="ethernet-10g")
    plain = predict_target(target, exported, seed=1)["best"]
    predicted = tuple(1.0 / slowness for slowness in HOSTS)
    trial = TimedTrial(measured=predicted[-1], predicted=predicted)
    slow = SpeedCalibration(trials=(trial,) * 20)
    assert slow.host_slowness > 1.5
    found = predict_target(replace(target, speed_calibration=slow), exported, seed=1)["best"]
    here = SpeedModel(
        workload=target.here.workload, surroundings=target.here.surroundings, calibration=slow
    )
    faster = replace(exported, ds_config=found["ds_config"], model_settings=found["model_settings"])
    speeds = [here.corrected(_moved(one, here.workload)) for one in (faster, exported)]
    assert speeds[0] is not None
    assert speeds[1] is not None
    assert found["ratio_here"] == pytest.approx(speeds[0].tokens_per_s / speeds[1].tokens_per_s)
    assert found["ratio_here"] != pytest.approx(plain["ratio_here"], rel=1e-3)


def test_a_micro_batch_that_no_longer_divides_falls(simulation: Simulation) -> None:
    exported = simulation.point(stage=2, mb=4)
    found = predict_target(_target(64, global_batch_size=128), exported, seed=1)
    assert found["ds_config"]["train_micro_batch_size_per_gpu"] == 2
    assert found["ds_config"]["gradient_accumulation_steps"] == 1


def test_keys_move_where_that_is_faster(exported: Candidate) -> None:
    target = _target(256, network="ethernet-10g")
    found = predict_target(target, exported, seed=1)
    best = found["best"]
    assert best["ratio"] > 1.2
    assert best["ratio_low"] < best["ratio"] < best["ratio_high"]
    # It is the network that moves them: within a node they gain much less.
    assert best["ratio_here"] < 0.8 * best["ratio"]
    assert found["moves"]
    for key, move in found["moves"].items():
        assert move["from"] != move["to"], key
    # Every key that moved is needed: what costs nothing stays as it was.
    assert len(found["moves"]) < len(target.space.parameters) / 2
    faster = replace(exported, ds_config=best["ds_config"], model_settings=best["model_settings"])
    there = predict_throughput(training_of(faster, target.workload), target.speed)
    assert there.tokens_per_s / found["tokens_per_s"]["value"] == pytest.approx(best["ratio"])


def test_nothing_moves_from_the_best(exported: Candidate) -> None:
    target = _target(64)
    best = predict_target(target, exported, seed=1)["best"]
    already = replace(
        exported,
        ds_config=best["ds_config"],
        model_settings=best["model_settings"],
        values={},
    )
    found = predict_target(target, already, seed=1)
    assert found["best"]["ratio"] < 1.05


def test_a_config_that_does_not_fit_there_is_reported(simulation: Simulation) -> None:
    exported = simulation.point(stage=0, mb=32, ckpt=False)
    found = predict_target(_target(64), exported, seed=1)
    assert found["memory"]["fits"] is False
    assert found["problem"] == "it is predicted not to fit there"
    assert found["moves"]


def test_the_longer_wire_makes_the_ratio_less_sure(exported: Candidate) -> None:
    near, far = (
        predict_target(_target(256, network=name), exported, seed=1)["best"]
        for name in ("ib-ndr-400", "ethernet-10g")
    )
    widths = [math.log(best["ratio_high"] / best["ratio_low"]) for best in (near, far)]
    assert widths[0] < widths[1]


def test_a_study_stores_prints_and_records_it(
    simulation: Simulation, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = simulation.run(tmp_path / "s", trials=10, predicting=True, target=_target(64))
    assert result.record is not None
    target = result.record["target"]
    assert target["gpus"] == 64
    assert target["trial"] == result.record["trial"]
    assert target["corrected_by_trials"] == result.record["predictions"]["speed"]["num_compared"]
    summarize(result.study, result.folder, result.record)
    out = " ".join(capsys.readouterr().out.split())
    batch, trials = target["global_batch_size"], target["corrected_by_trials"]
    found = f"predicted on 64 GPUs, global batch {batch} (modelled, corrected by {trials} trials): "
    assert found in out
    for key in target["moves"]:
        assert f"{key}: " in out


def test_a_study_without_a_target_has_none(simulation: Simulation, tmp_path: Path) -> None:
    record = simulation.run(tmp_path / "s", trials=6).record
    assert record is not None
    assert record["target"] is None


@pytest.fixture
def near() -> _Neighbours:
    target = _target(256, network="ethernet-10g")
    return _Neighbours(target=target, screen=target.screen(), speed=target.speed_model())


_ZERO = "zero_optimization."
_SLOW = {
    f"{_ZERO}stage": 3,
    f"{_ZERO}contiguous_gradients": True,
    "train_micro_batch_size_per_gpu": 4,
    "model.activation_checkpointing": False,
}


def test_another_choice_of_a_key_is_found(near: _Neighbours) -> None:
    start = near.with_values(_SLOW)
    better = near.improved(start)
    assert near.rate(better) > 1.5 * near.rate(start)
    assert near.screen.judge(better) is None


def test_a_key_that_gains_nothing_stays_as_it_was(near: _Neighbours) -> None:
    there = near.with_values(_SLOW)
    fast = near.with_values(
        {
            **_SLOW,
            f"{_ZERO}stage": 1,
            f"{_ZERO}contiguous_gradients": False,
            "train_micro_batch_size_per_gpu": 8,
        }
    )
    liker = near.likened(fast, there)
    assert liker.values[f"{_ZERO}stage"] == 1
    assert liker.values[f"{_ZERO}contiguous_gradients"] is True
    assert near.rate(liker) >= (1 - MATTERS) * near.rate(fast)
