"""Builds the record of a study: the numbers of the exported config."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from autotune import dotted
from autotune.ds_config.build import BATCH_KEYS, without_searched
from autotune.errors import ExportError
from autotune.evaluate.evaluator_kind import EvaluatorKind, caveats_of
from autotune.job.cpu_threads import VARIABLE
from autotune.job.launcher import Launcher
from autotune.job.workload import Workload
from autotune.lint.check import verdict_of
from autotune.search.prelaunch_lint import lint_for
from autotune.space.proposal import MODEL_PREFIX
from autotune.study.candidate import TrialRecord
from autotune.study.confirmation import LOSS_TOLERANCE, Confirmation
from autotune.study.environment import THREADS_PER_RANK
from autotune.study.model_reports import SpeedReport
from autotune.study.outcome import Outcome, Status
from autotune.study.record import Record
from autotune.study.step_times import Interval
from autotune.study.view import StudyView, tokens_per_s_of_runs


def build_record(study: StudyView) -> Record:
    """Return the record of a study, which must have something to export."""
    exported, confirmation = study.exported, study.confirmation
    assert exported is not None
    assert confirmation is not None
    setup, runs = study.setup, confirmation.exported_runs
    ended_at, ds_config = confirmation.ended_at, exported_ds_config(study)
    return Record(
        created=None if ended_at is None else datetime.fromisoformat(ended_at),
        evaluator=setup.evaluator,
        not_shown=caveats_of(setup.evaluator, setup.communication),
        emulation=_emulation(study),
        modelling=_modelling(study),
        trial=exported.number,
        source=exported.candidate.source,
        keeps_baseline=confirmation.keeps_baseline,
        tokens_per_s=tokens_per_s_of_runs(runs),
        num_runs=len(runs),
        baseline=_baseline(study, confirmation),
        challenger=_challenger(study, confirmation),
        memory={
            # With the peak, how much runs of one config differ.
            "peak_bytes_least": min(run.peak_bytes for run in runs),
            **_memory(max(runs, key=lambda run: run.peak_bytes), setup.ceiling_bytes),
        },
        ds_config=ds_config,
        model_settings=dict(exported.candidate.model_settings),
        launcher_settings=_launcher_settings(study),
        composition_error=composition_error(exported, confirmation),
        lint=_lint(setup.workload, ds_config),
        losses={
            "relative_difference": confirmation.loss_difference,
            "tolerance": LOSS_TOLERANCE,
            "compared": confirmation.loss_difference is not None,
        },
        predictions={
            "memory": study.screen.to_json() if study.screen else None,
            "speed": _speed(study, confirmation),
        },
        target=None if study.target is None else dict(study.target),
        job=None if setup.job is None else dict(setup.job),
        workload=setup.workload,
        environment=dict(setup.environment),
        study={
            "name": study.name,
            "seed": setup.seed,
            "num_trials": len(study.records),
            "by_status": dict(study.counts),
            "space": setup.space.name,
        },
    )


def _launcher_settings(study: StudyView) -> dict[str, Any]:
    """Return the variables that the launcher must set; empty if recorded by an older version."""
    threads = study.setup.environment.get(THREADS_PER_RANK)
    return {} if threads is None else {VARIABLE: threads}


def _lint(workload: Workload, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the findings of the gate's rules in the exported config."""
    # "auto" remains only where the user's base has it, for Hugging Face to resolve.
    launcher = Launcher.HF if "auto" in dotted.flatten(config).values() else Launcher.DEEPSPEED
    findings = lint_for(workload, config, launcher=launcher)
    return {
        "verdict": verdict_of(findings).value,
        "findings": [finding.to_json() for finding in findings],
    }


def composition_error(exported: TrialRecord, confirmation: Confirmation) -> float | None:
    """Return the relative error of the search's composed tokens/s against whole steps.

    None if the search timed whole steps already.
    """
    outcome = exported.outcome
    if outcome is None or outcome.measurement is None or not outcome.measurement.composed:
        return None
    whole = tokens_per_s_of_runs(confirmation.exported_runs).mean
    return outcome.measurement.tokens_per_s.mean / whole - 1


def _emulation(study: StudyView) -> dict[str, Any] | None:
    """Return the assumed nodes and links of emulated ranks; None for real ranks."""
    setup = study.setup
    if setup.gpus_per_node is None or setup.evaluator == EvaluatorKind.MODELLED:
        return None
    return {
        "gpus_per_node": setup.gpus_per_node,
        "communication": setup.communication,
        "links": setup.links,
    }


def _modelling(study: StudyView) -> dict[str, Any] | None:
    """Return the assumed devices of a modelled study; None where trials ran."""
    setup = study.setup
    if setup.evaluator != EvaluatorKind.MODELLED:
        return None
    return {
        "gpu_type": setup.gpu_type,
        "gpus_per_node": setup.gpus_per_node,
        "communication": setup.communication,
        "links": setup.links,
    }


def _speed(study: StudyView, confirmation: Confirmation) -> dict[str, Any] | None:
    """Return the speed model's predictions beside the measured or emulated numbers.

    None where it lacks the device, or is the evaluator. Predictions are not corrected by trials.
    """
    report = study.speed
    if report is None:
        return None
    pairs = {
        "winner": (confirmation.winner, confirmation.winner_runs),
        "baseline": (confirmation.baseline, confirmation.baseline_runs),
    }
    return {
        "evaluator": EvaluatorKind.MODELLED,
        "num_compared": report.num_compared,
        "mean_error": report.mean_error,
        "worst_error": report.worst_error,
        "host_slowness": report.host_slowness,
        **{role: _predicted(report, number, runs) for role, (number, runs) in pairs.items()},
    }


def _predicted(
    report: SpeedReport, number: int | None, runs: tuple[Outcome, ...]
) -> dict[str, Any] | None:
    """Return the prediction for a trial, and the mean of its confirmation runs."""
    predicted = None if number is None else report.of_trial(number)
    if predicted is None or not all(run.status is Status.COMPLETE for run in runs):
        return None
    value, low, high = predicted
    ran = tokens_per_s_of_runs(runs).mean
    return {
        "trial": number,
        "predicted_tokens_per_s": {"value": value, "low": low, "high": high},
        f"{runs[0].evaluator}_tokens_per_s": ran,
        "error": value / ran - 1,
    }


def _baseline(study: StudyView, confirmation: Confirmation) -> Mapping[str, Any] | None:
    """Return the baseline and the exported config's ratio to it; None if no baseline fits.

    A baseline that fitted in the search and failed in the confirmation has a `failure` and no
    numbers.
    """
    if confirmation.baseline is None:
        return None
    record = study.records[confirmation.baseline]
    ratio = Interval(1.0, 1.0, 1.0) if confirmation.keeps_baseline else confirmation.ratio
    runs = confirmation.baseline_runs
    return {
        "name": record.candidate.source,
        "trial": record.number,
        "ds_config": dict(record.candidate.ds_config),
        "model_settings": dict(record.candidate.model_settings),
        "tokens_per_s": tokens_per_s_of_runs(runs).to_json() if ratio else None,
        **_ratio(ratio),
        "failure": confirmation.baseline_failure,
    }


def _challenger(study: StudyView, confirmation: Confirmation) -> Mapping[str, Any] | None:
    """Return the trial that did not beat the baseline, or None if one did or none was there."""
    ratio = confirmation.ratio
    if not confirmation.keeps_baseline or ratio is None:
        return None
    record = study.records[confirmation.winner]
    return {
        "trial": record.number,
        "ds_config": dict(record.candidate.ds_config),
        "model_settings": dict(record.candidate.model_settings),
        **_ratio(ratio),
    }


def _memory(outcome: Outcome, ceiling_bytes: int) -> dict[str, Any]:
    """Return the memory of a run; a modelled one has no ranks."""
    ranks = outcome.measurement.ranks if outcome.measurement else ()
    return {
        "peak_bytes": outcome.peak_bytes,
        "ceiling_bytes": ceiling_bytes,
        "charged_bytes": outcome.charged_bytes,
        "ranks": [
            {
                "rank": rank.rank,
                "peak_bytes": rank.peak_bytes,
                "host_bytes": rank.host_bytes,
                "phases": {
                    memory.phase.value: {
                        "used_bytes": memory.used_bytes,
                        "allocated_bytes": memory.allocated_bytes,
                        "reserved_bytes": memory.reserved_bytes,
                    }
                    for memory in rank.memory
                },
            }
            for rank in ranks
        ],
    }


def _ratio(ratio: Interval | None) -> dict[str, float | None]:
    ends = dict.fromkeys(("value", "low", "high")) if ratio is None else ratio.to_json()
    return {"ratio": ends["value"], "ratio_low": ends["low"], "ratio_high": ends["high"]}


def exported_ds_config(study: StudyView) -> dict[str, Any]:
    """Return the config of the study's winner, or of the baseline that it did not beat.

    A key that the user's base config left to Hugging Face ("auto") stays "auto" if it was not
    searched: the learning rate is in the user's TrainingArguments, not here.

    Raises:
        ExportError: nothing was confirmed.
    """
    exported = study.exported
    if exported is None:
        raise ExportError(
            f"study {study.name}: no trial was confirmed, so there is nothing to export; continue "
            "with `autotune run --resume`"
        )
    searched = [p.key for p in study.setup.space.parameters if not p.key.startswith(MODEL_PREFIX)]
    kept = dotted.flatten(without_searched(study.setup.base, searched))
    autos = {key: value for key, value in kept.items() if value == "auto" and key not in BATCH_KEYS}
    return dotted.updated(exported.candidate.ds_config, autos)
