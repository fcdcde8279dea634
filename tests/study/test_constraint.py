"""What an emulated rank is charged counts for the sampler, and for it alone."""

from dataclasses import replace

import pytest

from autotune.study.constraint import constraints_of
from autotune.study.outcome import Status
from tests.evaluate.fake import FakeEvaluator
from tests.search.setting import tiny_workload

EVALUATOR = FakeEvaluator(workload=tiny_workload(), ceiling_bytes=1)


@pytest.mark.parametrize(("charged_bytes", "excess"), [(0, 0.1), (200, 0.3)])
def test_the_excess_of_a_trial_over_the_ceiling_has_what_it_is_charged(
    charged_bytes: int, excess: float
) -> None:
    outcome = EVALUATOR.failed(Status.OVER_CEILING, "as if", needed_bytes=1_100)
    found = constraints_of(replace(outcome, charged_bytes=charged_bytes), ceiling_bytes=1_000)
    assert found == {"memory": pytest.approx(excess)}


def test_a_charge_alone_is_not_a_need() -> None:
    outcome = EVALUATOR.failed(Status.OOM_HOST, "as if")
    found = constraints_of(replace(outcome, charged_bytes=5_000), ceiling_bytes=1_000)
    assert found == {"memory": 1e-3}
