import pytest

from autotune.errors import WorkloadError
from autotune.job.assumed_shape import assumed_shape
from autotune.predict.memory.error_margins import UNMEASURED_MARGIN, margin, unmeasured
from tests.predict.jobs import job


@pytest.mark.parametrize("number", [1e6, 1.25e8, 1.3e9, 6.74e9, 1.3e10, 7e10, 1.75e11])
def test_an_assumed_shape_has_the_number_of_parameters(number: float) -> None:
    assert assumed_shape(number).num_parameters == pytest.approx(number, rel=0.001)


def test_known_sizes_get_their_known_widths() -> None:
    shape = assumed_shape(13.0e9)
    assert (shape.hidden_size, shape.num_hidden_layers) == (5_120, 40)


def test_a_bill_says_that_the_shape_was_assumed() -> None:
    training = job({"stage": 2}, model=assumed_shape(1.3e9))
    assert "a shape assumed from its number of parameters" in unmeasured(training)
    assert margin(training) == UNMEASURED_MARGIN


@pytest.mark.parametrize("number", [0, -7e9, 12_000, float("nan")])
def test_too_few_parameters_are_refused(number: float) -> None:
    with pytest.raises(WorkloadError, match="give at least 1e6"):
        assumed_shape(number)
