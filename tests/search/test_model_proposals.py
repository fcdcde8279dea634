"""First trials that the speed model proposes, in simulated studies."""

from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from autotune.evaluate import TrialRequest
from autotune.job.ceiling import GIB
from autotune.predict.memory.estimate import DeviceEstimate
from autotune.predict.speed_calibration import HOSTS, SpeedCalibration, TimedTrial
from autotune.search.model_proposals import (
    MAX_DRAWN,
    MAX_PREDICTED,
    coarse,
    draw_proposals,
    fastest_first,
)
from autotune.search.proposer import NUM_PREDICTED
from autotune.study.outcome import Outcome, Status
from autotune.study.view import StudyView
from tests.search.setting import small_space
from tests.search.simulated import Simulation, launched, reopened, workload_7b

NAMES = [f"modelled-best-{place}" for place in range(1, NUM_PREDICTED + 1)]


WORKLOAD = workload_7b(num_layers=2)
PREDICTED: dict[str, DeviceEstimate] = {}


@pytest.fixture
def simulation() -> Simulation:
    return Simulation(workload=WORKLOAD, ceiling_bytes=24 * GIB, predicted=PREDICTED)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> StudyView:
    """A study that nothing interrupts."""
    simulation = Simulation(workload=WORKLOAD, ceiling_bytes=24 * GIB, predicted=PREDICTED)
    folder = tmp_path_factory.mktemp("studies") / "whole"
    return simulation.run(folder, trials=12, predicting=True).study


def test_a_space_is_drawn_the_same_way_for_a_seed(simulation: Simulation) -> None:
    space = simulation.space
    first, again, other = (list(islice(draw_proposals(space, seed=seed), 50)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert len(set(first)) == 50
    for proposal in first:
        assert space.canonical(proposal.values) == proposal
        for parameter in space.parameters:
            if parameter.key in proposal.values:
                assert parameter.kind.holds(proposal.values[parameter.key])


def test_a_small_space_is_drawn_to_its_end() -> None:
    space = small_space("parameters:\n  zero_optimization.stage: {choices: [1, 2]}\n")
    assert {p.values["zero_optimization.stage"] for p in draw_proposals(space, seed=1)} == {1, 2}


def test_sizes_are_drawn_on_their_own_scale() -> None:
    key = "zero_optimization.reduce_bucket_size"
    space = small_space(
        f"parameters:\n  {key}: {{low: 1024, high: 1073741824, log: true, multiple_of: 1024}}\n"
    )
    drawn = [int(p.values[key]) for p in islice(draw_proposals(space, seed=1), 200)]
    assert all(size % 1024 == 0 for size in drawn)
    assert 60 < sum(size < 2**20 for size in drawn) < 140


def test_the_fastest_comes_first_and_fits(simulation: Simulation) -> None:
    screen, speed = simulation.screen(), simulation.speed()
    found = list(fastest_first(simulation.space, base={}, seed=1, screen=screen, speed=speed))
    assert 3 < len(found) <= MAX_PREDICTED < MAX_DRAWN
    rates = [predicted.tokens_per_s for c in found if (predicted := speed.predict(c))]
    assert len(rates) == len(found)
    assert rates == sorted(rates, reverse=True)
    assert all(map(screen.may_fit, found))


def test_what_trials_teach_of_the_host_changes_the_order(simulation: Simulation) -> None:
    def order(host: int) -> list[str]:
        """Return the points after a trial that was as fast as predicted for one of `HOSTS`."""
        speed = simulation.speed()
        predicted = (5.0, 4.5, 4.0, 3.5, 3.0, 2.5, 2.0, 1.8, 1.6, 1.4)
        trial = TimedTrial(measured=predicted[host], predicted=predicted)
        speed.calibration = SpeedCalibration(trials=(trial,))
        found = list(
            fastest_first(
                simulation.space, base={}, seed=1, screen=simulation.screen(), speed=speed
            )
        )
        speeds = [p.tokens_per_s for p in map(speed.corrected, found) if p is not None]
        assert speeds == sorted(speeds, reverse=True)
        return [candidate.identity(WORKLOAD.world_size) for candidate in found]

    usual, slow = order(HOSTS.index(1.0)), order(len(HOSTS) - 1)
    assert sorted(usual) == sorted(slow)
    assert usual != slow


def test_the_best_few_are_launched_after_the_baselines(
    simulation: Simulation, tmp_path: Path
) -> None:
    study = simulation.run(tmp_path / "s", trials=14, predicting=True).study
    sources = [candidate.source for candidate in launched(study)]
    first = sources.index(NAMES[0])
    assert sources[first : first + 3] == NAMES
    assert set(sources[first + 3 :]) == {"sampled"}
    assert not {"sampled"} & set(sources[:first])
    few = launched(study)[first : first + 3]
    assert len({coarse(candidate) for candidate in few}) == 3
    assert not any(candidate.is_baseline for candidate in few)
    assert study.best_baseline is not None
    assert study.best_baseline.candidate.source not in NAMES
    speed = simulation.speed()
    rates = [predicted.tokens_per_s for c in few if (predicted := speed.predict(c))]
    assert rates == sorted(rates, reverse=True)


def test_the_confirmation_may_export_one_of_them(
    simulation: Simulation, whole: StudyView, tmp_path: Path
) -> None:
    quick = replace(simulation)

    def override(request: TrialRequest) -> Outcome | None:
        # All others are refused.
        if request.label.startswith("trial") and request.label not in taken:
            return quick.evaluator().failed(Status.CRASHED, "as if")
        return None

    taken = {f"trial-{r.number:04d}" for r in whole.records if r.candidate.is_predicted}
    simulation.wrong = override
    result = simulation.run(tmp_path / "s", trials=12, predicting=True)
    assert result.record is not None
    assert result.record["source"] in NAMES
    assert result.record["baseline"] is None


def test_without_a_screen_no_points_are_proposed(simulation: Simulation, tmp_path: Path) -> None:
    study = simulation.run(tmp_path / "s", trials=12, predicting=True, screened=False).study
    assert not {candidate.source for candidate in launched(study)} & set(NAMES)
    assert study.speed is not None
    assert study.speed.num_compared > 0


@pytest.mark.parametrize("stop_after", [1, 2, 3, 4])
def test_a_resumed_study_proposes_what_an_uninterrupted_one_does(
    simulation: Simulation, whole: StudyView, tmp_path: Path, stop_after: int
) -> None:
    sources = [candidate.source for candidate in launched(whole)]
    stopped = sources.index(NAMES[0]) + stop_after - 1
    simulation.run(tmp_path / "s", trials=stopped, predicting=True, on_disk=True)
    simulation.run(tmp_path / "s", trials=12, predicting=True, on_disk=True, resume=True)
    assert launched(reopened(tmp_path / "s")) == launched(whole)
