import json
from dataclasses import replace

import pytest

from autotune.evaluate.modelled import ModelledEvaluator
from autotune.job.ceiling import GIB
from autotune.job.device import find_device
from autotune.job.model_shape import load_model_shape
from autotune.predict.memory.predict import Surroundings
from autotune.predict.speed_calibration import HOSTS, SpeedCalibration, TimedTrial
from autotune.predict.throughput import SpeedSurroundings
from autotune.study.outcome import Modelled, Outcome, Status
from autotune.study.step_times import Interval
from tests.evaluate.conformance import CHECKS_OF_ANY, Check, Subject
from tests.job.workloads import resolve_workload

H200 = find_device("h200")
CEILING_BYTES = int(1.6 * GIB)
"""Lets stage 0 fit, but no bucket of 5e8 elements beside a driver's context."""


@pytest.fixture
def evaluator() -> ModelledEvaluator:
    workload = resolve_workload(
        load_model_shape("tiny"), gpus=1, base={}, seq_len=64, global_batch_size=8
    )
    return ModelledEvaluator(
        workload=workload,
        memory=Surroundings(device=H200, ceiling_bytes=CEILING_BYTES),
        speed=SpeedSurroundings.of(H200, local_ranks=1),
    )


@pytest.fixture
def subject(evaluator: ModelledEvaluator) -> Subject:
    return Subject(evaluator=evaluator, workload=evaluator.workload)


@pytest.mark.parametrize("check", CHECKS_OF_ANY, ids=lambda check: check.__name__)
def test_the_modelled_evaluator_conforms(check: Check, subject: Subject) -> None:
    check(subject)


def test_nothing_modelled_passes_for_measured(subject: Subject) -> None:
    outcome = subject.evaluate(subject.request("modelled", stage=0))
    assert outcome.measurement is None
    with pytest.raises(ValueError, match="was not measured"):
        _ = outcome.measured
    assert json.loads(json.dumps(outcome.to_json()))["measurement"] is None


def test_a_trial_is_not_both_measured_and_modelled(subject: Subject) -> None:
    outcome = subject.evaluate(subject.request("modelled", stage=0))
    from tests.evaluate.fake import FakeEvaluator

    fake = FakeEvaluator(
        workload=subject.workload, ceiling_bytes=CEILING_BYTES, capacity=1, delay_s=0.0
    )
    ran = replace(subject, evaluator=fake).evaluate(subject.request("ran", stage=0))
    with pytest.raises(ValueError, match="measured or modelled, not both"):
        replace(outcome, measurement=ran.measured)


def test_what_does_not_fit_was_never_launched(subject: Subject) -> None:
    request = subject.request("too-large", stage=2, reduce_bucket_size=500_000_000)
    outcome = subject.evaluate(request)
    assert outcome.status is Status.REJECTED
    assert outcome.failure is not None
    assert outcome.failure.needed_bytes is not None
    assert outcome.failure.needed_bytes > CEILING_BYTES


def test_host_memory_counts_where_it_is_known(evaluator: ModelledEvaluator) -> None:
    memory = replace(evaluator.memory, ceiling_bytes=8 * GIB, host_bytes=GIB)
    small = Subject(evaluator=replace(evaluator, memory=memory), workload=evaluator.workload)
    outcome = small.evaluate(small.request("host", stage=2, offload_optimizer={"device": "cpu"}))
    assert outcome.status is Status.REJECTED
    assert outcome.failure is not None
    assert "host memory" in outcome.failure.reason


def test_measured_trials_of_the_study_correct_it(evaluator: ModelledEvaluator) -> None:
    plain = Subject(evaluator=evaluator, workload=evaluator.workload)
    request = plain.request("plain", stage=0)
    before = plain.evaluate(request).tokens_per_s
    trial = TimedTrial(measured=before.mean / 2, predicted=(before.mean,) * len(HOSTS))
    calibration = SpeedCalibration(trials=(trial,) * 5)
    after = replace(plain, evaluator=replace(evaluator, calibration=calibration)).evaluate(request)
    assert before.mean / 2 < after.tokens_per_s.mean < 0.6 * before.mean
    assert after.tokens_per_s.relative_half_width < before.relative_half_width


def test_outcomes_of_older_studies_can_still_be_read(subject: Subject) -> None:
    outcome = subject.evaluate(subject.request("refused", stage=7))
    older = outcome.to_json()
    del older["modelled"]
    assert Outcome.from_json(older) == outcome


def test_a_model_s_word_survives_json() -> None:
    modelled = Modelled(tokens_per_s=Interval(2.0, 1.0, 3.0), peak_bytes=5)
    assert Modelled.from_json(json.loads(json.dumps(modelled.to_json()))) == modelled
