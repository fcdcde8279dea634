"""What `autotune run` prints at its end."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from autotune.export.trials_csv import trials_table
from autotune.report.summary import _print_launcher_settings, _table, result_json, summarize
from autotune.search.progress import Silent
from autotune.study.confirmation import is_complete
from autotune.study.outcome import DeviceClocks, Outcome, Phase, RankMeasurement, Status
from autotune.tuning import TuneResult, run_study
from tests.asked import tune_request
from tests.evaluate.fake import MIB
from tests.search.setting import FEW_POINTS, Setting, setting, small_space


def _run(here: Setting, trials: int) -> TuneResult:
    request = tune_request(model="tiny", gpus=2, trials=trials, confirm_rounds=3)
    return run_study(here.open(), here.evaluator, here.folder, request=request, progress=Silent())


def _printed(result: TuneResult, capsys: pytest.CaptureFixture[str]) -> str:
    summarize(result.study, result.folder, result.record)
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def _overlap_only() -> Any:
    return small_space("parameters: {zero_optimization.overlap_comm: {choices: [false, true]}}")


def test_a_winner_stands_beside_its_baseline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = _run(setting(tmp_path / "s", noise=0.001, space=small_space(FEW_POINTS)), 26)
    printed = _printed(result, capsys)
    for row in ("baseline", "winner", "ratio", "3 interleaved runs each", "over the best baseline"):
        assert row in printed
    assert "study s: tiny, 2 cpu ranks, global batch 16 x 128 tokens, bf16" in printed
    assert "ceiling 0.16 GiB a rank" in printed
    assert str(result.folder / "ds_config.json") in printed.replace("\n", "")
    assert "set in your script" in printed
    assert "activation_checkpointing: " in printed


def test_emulated_numbers_are_called_so_with_what_they_leave_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = setting(tmp_path / "s", noise=0.001, space=small_space(FEW_POINTS), name="emulated")
    evaluate = here.evaluator._outcome
    here.evaluator.override = lambda request: replace(evaluate(request), charged_bytes=MIB)
    printed = " ".join(_printed(_run(here, 26), capsys).split())
    assert "emulated: one device plays one rank of 2, 2 ranks a node" in printed
    assert "whole optimizer steps, emulated, 3 interleaved runs each" in printed
    assert (
        "emulated, so not in these numbers: communication time; the other ranks' share" in printed
    )
    assert "losses are not compared" in printed
    assert "0.00 GiB of the ceiling were kept free for the communication" in printed
    assert "measured" not in printed


def test_measured_numbers_leave_nothing_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = _printed(_run(setting(tmp_path / "s", noise=0.001), 12), capsys)
    assert "not in these numbers" not in printed
    assert "kept free" not in printed


def test_keep_yours_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = {"zero_optimization": {"stage": 0}, "train_micro_batch_size_per_gpu": 4}
    result = _run(setting(tmp_path / "s", base=base, space=_overlap_only()), 20)
    printed = _printed(result, capsys)
    assert "keep yours: nothing beats base beyond the spread" in printed
    assert "winner" not in printed
    assert "inf" not in printed
    assert "nan" not in printed


def test_a_proposal_that_beats_nothing_is_no_winner(tmp_path: Path) -> None:
    here = setting(tmp_path / "s", noise=0.001, space=small_space(FEW_POINTS))
    study = _run(here, 26).study
    confirmation = study.confirmations[-1]
    assert not confirmation.keeps_baseline
    # Each in the other's place.
    lost = replace(
        confirmation,
        winner_runs=confirmation.baseline_runs,
        baseline_runs=confirmation.winner_runs,
    )
    assert lost.keeps_baseline
    roles = [list(_table(study, one).columns[0].cells) for one in (confirmation, lost)]
    assert roles == [["baseline", role, "ratio"] for role in ("winner", "challenger")]


def test_what_is_not_the_users_is_not_called_theirs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another baseline is faster than their base, and nothing beats that one."""
    base = {"zero_optimization": {"stage": 0}, "train_micro_batch_size_per_gpu": 1}
    result = _run(setting(tmp_path / "s", base=base, space=_overlap_only()), 20)
    (own,) = (r for r in result.study.records if r.candidate.source == "base")
    assert own.outcome is not None
    printed = _printed(result, capsys)
    assert result.study.exported is not None
    assert result.study.exported.number != own.number
    assert "keep yours" not in printed
    speed = own.outcome.tokens_per_s.mean
    assert f"your --base: {speed:,.0f} tokens/s in the search, measured (trial" in printed


def test_of_a_base_that_leaves_its_micro_batch_open_the_best_attempt_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = setting(tmp_path / "s", base={"zero_optimization": {"stage": 0}}, noise=0.001)
    here.evaluator.override = lambda request: (
        here.evaluator.failed(Status.OVER_CEILING, "as if", phase=Phase.FIRST_STEP)
        if request.label == "trial-0000"
        else None
    )
    result = _run(here, 20)
    own = [r for r in result.study.records if r.candidate.source == "base"]
    assert len(own) > 1
    shown = {result.study.confirmations[-1].baseline, result.record and result.record["trial"]}
    complete = [r for r in own if is_complete(r)]
    assert complete
    printed = _printed(result, capsys)
    assert "your --base: over_ceiling" not in printed
    assert ("your --base: " in printed) is not bool(shown & {r.number for r in own})


def test_the_result_of_a_base_that_does_not_fit_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = {"zero_optimization": {"stage": 0}, "train_micro_batch_size_per_gpu": 4}
    here = setting(tmp_path / "s", base=base, noise=0.001)
    here.evaluator.override = lambda request: (
        here.evaluator.failed(Status.OVER_CEILING, "as if", phase=Phase.FIRST_STEP)
        if request.label in ("trial-0000", "trial-0001")
        else None
    )
    printed = _printed(_run(here, 20), capsys)
    assert "your --base: over_ceiling (trial 1)" in printed


def test_the_way_to_checkpoint_activations_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = setting(tmp_path / "s", noise=0.001)
    here.evaluator.override = lambda request: (
        None
        if request.model_settings["activation_checkpointing"]
        else here.evaluator.failed(Status.OVER_CEILING, "as if", phase=Phase.FIRST_STEP)
    )
    result = _run(here, 14)
    assert result.record is not None
    assert result.record["model_settings"]["activation_checkpointing"]
    printed = _printed(result, capsys)
    assert "model.gradient_checkpointing_enable(), or --gradient_checkpointing" in printed


def test_if_nothing_fits_the_choices_and_every_reason_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = _run(setting(tmp_path / "s", ceiling_bytes=MIB), 3)
    printed = _printed(result, capsys)
    assert "nothing fits: no trial ran to its end under the ceiling" in printed
    assert printed.count("over_ceiling: asked for") == 3


def test_a_failed_baseline_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = setting(tmp_path / "s", noise=0.001, space=small_space(FEW_POINTS))
    here.evaluator.override = lambda request: (
        here.evaluator.failed(Status.CRASHED, "as [if]") if "-baseline-1" in request.label else None
    )
    printed = _printed(_run(here, 20), capsys)
    assert "there is nothing to compare with: crashed: as [if]" in " ".join(printed.split())
    assert "ratio" not in printed


@pytest.mark.parametrize(("evaluator", "is_printed"), [("emulated", True), ("measured", False)])
def test_emulated_steps_that_differ_say_what_waiting_for_the_slowest_rank_would_add(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], evaluator: str, *, is_printed: bool
) -> None:
    """Real ranks have waited already."""
    here = setting(tmp_path / "s", noise=0.001, space=small_space(FEW_POINTS), name=evaluator)
    assert "waiting for the slowest" not in _printed(_run(here, 20), capsys)
    uneven = setting(tmp_path / "t", noise=0.001, space=small_space(FEW_POINTS), name=evaluator)
    evaluate = uneven.evaluator._outcome
    uneven.evaluator.override = lambda request: (
        _every_other_step_slow(evaluate(request)) if "winner" in request.label else None
    )
    printed = " ".join(_printed(_run(uneven, 20), capsys).split())
    line = (
        "waiting for the slowest of 2 such ranks adds 0% to the baseline's steps, 10% to the "
        "winner's steps; more where they wait at every collective"
    )
    assert (line in printed) == is_printed


def _every_other_step_slow(outcome: Outcome) -> Outcome:
    """Return an outcome whose steps take 0.8 and 1.2 times as long in turn."""

    def uneven(rank: RankMeasurement) -> RankMeasurement:
        factors = [0.8 if step % 2 else 1.2 for step in range(len(rank.boundary_s))]
        return replace(
            rank,
            inner_s=tuple(s * f for s, f in zip(rank.inner_s, factors, strict=True)),
            boundary_s=tuple(s * f for s, f in zip(rank.boundary_s, factors, strict=True)),
        )

    ranks = tuple(map(uneven, outcome.measured.ranks))
    return replace(outcome, measurement=replace(outcome.measured, ranks=ranks))


def test_runs_on_a_throttled_device_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = setting(tmp_path / "s", noise=0.001, space=small_space(FEW_POINTS))
    result = _run(here, 20)
    assert "throttled: " not in _printed(result, capsys)
    hot = DeviceClocks(
        num_samples=9,
        sm_clock_mhz_min=1_200,
        sm_clock_mhz_median=1_400,
        temperature_c_max=93,
        limits=("sw power cap", "hw thermal"),
    )
    complete = next(r for r in result.study.records if is_complete(r)).number
    records = [
        replace(record, outcome=_clocked(record.outcome, hot))
        if record.number == complete
        else record
        for record in result.study.records
    ]
    slowed = replace(result, study=replace(result.study, records=tuple(records)))
    printed = " ".join(_printed(slowed, capsys).split())
    assert "throttled: hw thermal: the devices ran slower than they can in 1 runs" in printed
    assert f"first in trial {complete}" in printed
    table = trials_table(slowed.study)
    rows = table[table["trial"] == complete]
    assert set(rows["clock_limits"].dropna()) == {"sw power cap, hw thermal"}
    assert set(rows["sm_clock_mhz"].dropna()) == {1_400}


def test_runs_on_a_slow_host_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = setting(tmp_path / "s", noise=0.001, space=small_space(FEW_POINTS))
    result = _run(here, 20)
    numbers = [r.number for r in result.study.records if is_complete(r)]

    def printed(loops_s: Mapping[int, float]) -> str:
        """Print the study as if its trials had found the host so fast."""
        records = [
            replace(record, outcome=_looped(record.outcome, loops_s[record.number]))
            if record.number in loops_s
            else record
            for record in result.study.records
        ]
        slowed = replace(result, study=replace(result.study, records=tuple(records)))
        return " ".join(_printed(slowed, capsys).split())

    even = dict.fromkeys(numbers, 0.001)
    assert "slow host" not in printed(even)
    assert "slow host" not in printed({**even, numbers[1]: 0.0012})
    text = printed({**even, numbers[1]: 0.0018})
    assert "slow host: in 1 run a rank's Python took up to 1.8 times as long" in text
    assert f"first in trial {numbers[1]}; steps that wait for it" in text
    text = printed({**even, numbers[0]: 0.0015, numbers[1]: 0.002})
    assert "slow host: in 2 of " in text
    assert "runs a rank's Python took up to 2.0 times" in text
    assert f"as in the median run, first in trial {numbers[0]};" in text
    assert "slow host" not in printed(dict.fromkeys(range(len(result.study.records)), 0.002))


def test_a_study_from_before_the_host_was_noted_says_nothing_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = setting(tmp_path / "s", noise=0.001, space=small_space(FEW_POINTS))
    evaluate = here.evaluator._outcome
    here.evaluator.override = lambda request: _looped(evaluate(request), None)
    assert "slow host" not in _printed(_run(here, 20), capsys)


def _looped(outcome: Outcome | None, loop_s: float | None) -> Outcome:
    """Return an outcome whose last rank alone has a slow host; None: not recorded."""
    assert outcome is not None
    if outcome.measurement is None:
        return outcome
    *others, last = outcome.measured.ranks

    def looped(rank: RankMeasurement, seconds: float) -> RankMeasurement:
        loops = () if loop_s is None else (seconds,) * len(rank.boundary_s)
        return replace(rank, host_loop_s=loops)

    ranks = (*(looped(rank, 0.001) for rank in others), looped(last, loop_s or 0.0))
    return replace(outcome, measurement=replace(outcome.measured, ranks=ranks))


def _clocked(outcome: Outcome | None, clocks: DeviceClocks) -> Outcome:
    assert outcome is not None
    ranks = tuple(replace(rank, clocks=clocks) for rank in outcome.measured.ranks)
    return replace(outcome, measurement=replace(outcome.measured, ranks=ranks))


def test_the_json_has_the_same_counts(tmp_path: Path) -> None:
    result = _run(setting(tmp_path / "s"), 9)
    as_json = result_json(result.study, result.folder, result.record)
    assert as_json["num_trials"] == sum(as_json["by_status"].values()) == 9
    assert as_json["record"] == result.record
    assert as_json["evaluator"] == "measured"


def test_the_launcher_s_threads_are_printed_where_the_optimizer_runs_on_the_cpu(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def printed(device: str, settings: Mapping[str, int]) -> str:
        record = {
            "launcher_settings": settings,
            "ds_config": {"zero_optimization": {"offload_optimizer": {"device": device}}},
            "environment": {"threads_origin": "--cpu-threads"},
        }
        _print_launcher_settings(Console(highlight=False, width=140), record)
        return capsys.readouterr().out

    text = printed("cpu", {"OMP_NUM_THREADS": 8})
    assert "set in your launcher: OMP_NUM_THREADS=8 (--cpu-threads)" in text
    for command in (
        "OMP_NUM_THREADS=8 torchrun",
        "--num_cpu_threads_per_process 8",
        "export OMP_NUM_THREADS=8; deepspeed",
    ):
        assert command in text
    assert printed("none", {"OMP_NUM_THREADS": 8}) == ""
    assert printed("cpu", {}) == ""
