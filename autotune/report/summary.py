"""The table at the end of `autotune run`, and the same as one JSON object."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.export.record import composition_error
from autotune.job.ceiling import format_gib
from autotune.job.cpu_threads import VARIABLE, launch_commands
from autotune.lint.finding import Severity
from autotune.report.caveats import print_conditions, print_omissions
from autotune.search.baselines import USERS_OWN
from autotune.study.candidate import TrialRecord
from autotune.study.confirmation import Confirmation, best_of
from autotune.study.environment import THREADS_ORIGIN
from autotune.study.step_times import Interval
from autotune.study.view import StudyView, status_word, tokens_per_s_of_runs

_HUGGING_FACE = {
    "activation_checkpointing": {
        True: "model.gradient_checkpointing_enable(), or --gradient_checkpointing",
        False: "no activation checkpointing (Hugging Face's default)",
    }
}


def summarize(study: StudyView, folder: Path, record: Mapping[str, Any] | None) -> None:
    """Print the result of a study."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 140  # a log has no width; wrapped tables are hard to read there
    setup = study.setup
    workload = setup.workload
    console.print(
        f"study {study.name}: {workload.model.name}, {workload.world_size} {setup.device_kind} "
        f"ranks, global batch {workload.global_batch_size} x {workload.seq_len} tokens, "
        f"{workload.precision}, ceiling {format_gib(setup.ceiling_bytes)} a rank"
    )
    if study.assumed:
        console.print(f"assumed: {'; '.join(study.assumed)}", markup=False)
    if setup.evaluator == EvaluatorKind.MODELLED:
        console.print(
            f"modelled: nothing ran; {setup.gpu_type}, {setup.gpus_per_node} ranks a node, "
            f"communication by {setup.communication}"
        )
    elif setup.gpus_per_node is not None:
        console.print(
            f"{setup.evaluator}: one device plays one rank of {workload.world_size}, "
            f"{setup.gpus_per_node} ranks a node"
        )
    counts = ", ".join(f"{count} {status}" for status, count in sorted(study.counts.items()))
    console.print(f"{len(study.records)} trials: {counts}")
    _print_screening(console, study)
    _print_speed_model(console, study)
    print_conditions(console, study)
    confirmation = study.confirmation
    if record is None or confirmation is None:
        _print_nothing_fits(console, study)
        return
    console.print(_table(study, confirmation))
    print_omissions(console, study, confirmation)
    _print_verdict(console, study, confirmation)
    if study.target is not None:
        _print_target(console, study.target)
    console.print(f"[bold]{folder / 'ds_config.json'}[/bold]  ({folder / 'record.json'})")
    _print_lint(console, record["lint"]["findings"])
    _print_model_settings(console, record["model_settings"])
    _print_launcher_settings(console, record)


def result_json(study: StudyView, folder: Path, record: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the result of a study as JSON values."""
    return {
        "study": study.name,
        "assumed": list(study.assumed),
        "folder": str(folder),
        "evaluator": study.setup.evaluator,
        "num_trials": len(study.records),
        "by_status": dict(study.counts),
        "num_rejected": len(study.rejections),
        "record": record,
    }


def _table(study: StudyView, confirmation: Confirmation) -> Table:
    evaluator = study.setup.evaluator
    title, interval = (
        f"whole optimizer steps, {evaluator}, {_rounds(confirmation)}",
        "95 % interval",
    )
    if evaluator == EvaluatorKind.MODELLED:
        title, interval = f"predicted, {evaluator}: nothing ran", "the model's 90 %"
    table = Table(title=title)
    for column in ("", "trial", "tokens/s", interval, "peak memory", "config"):
        table.add_column(column, justify="right" if column in ("tokens/s", "trial") else "left")
    for row in confirmation.compared:
        table.add_row(row.role, *_cells(study.records[row.number], row.runs))
    if (ratio := confirmation.ratio) is not None:
        table.add_row(
            "ratio", "", f"{ratio.mean:.3f}", f"{ratio.low:.3f} to {ratio.high:.3f}", "", ""
        )
    return table


def _cells(record: TrialRecord, runs: tuple[Any, ...]) -> tuple[str, str, str, str, str]:
    interval = tokens_per_s_of_runs(runs)
    peak = max(run.peak_bytes for run in runs)
    return (
        str(record.number),
        f"{interval.mean:,.0f}",
        _range(interval),
        format_gib(peak),
        describe(record),
    )


def describe(record: TrialRecord) -> str:
    """Return a config in a few words: stage, offload, micro batch, checkpointing."""
    config = record.candidate.ds_config
    zero = config.get("zero_optimization", {})
    words = [
        f"stage {zero.get('stage', 0)}",
        f"micro batch {config['train_micro_batch_size_per_gpu']}",
    ]
    for section in ("offload_optimizer", "offload_param"):
        device = (zero.get(section) or {}).get("device", "none")
        if device != "none":
            words.append(f"{section} {device}")
    if record.candidate.model_settings.get("activation_checkpointing"):
        words.append("activation checkpointing")
    name = f"{record.candidate.source}: " if record.candidate.is_baseline else ""
    return name + ", ".join(words)


def _rounds(confirmation: Confirmation) -> str:
    rounds = max(len(confirmation.winner_runs), len(confirmation.baseline_runs))
    return f"{rounds} interleaved runs each" if confirmation.ratio else f"{rounds} runs"


def _range(interval: Interval) -> str:
    if interval.high == float("inf"):
        return "one run: unknown"
    return f"{interval.low:,.0f} to {interval.high:,.0f}"


def _print_screening(console: Console, study: StudyView) -> None:
    """Print how many proposals the memory model rejected, and its error."""
    screen = study.screen
    if screen is None:
        return
    line = f"{screen.num_rejected} proposals rejected before launch, predicted not to fit"
    if screen.num_rejected:
        line += f" ({screen.num_taken_back} of them the model would take back now)"
    console.print(line)
    if screen.mean_error is not None and screen.worst_error is not None:
        console.print(
            f"memory model on {screen.num_compared} trials of this study: mean error "
            f"{screen.mean_error:.2%}, worst {screen.worst_error:+.2%}"
        )
    elif study.setup.device_kind == "cpu":
        console.print("memory model: a lower bound on CPU ranks, so no error is printed")
    if screen.num_surprises and study.setup.device_kind != "cpu":
        console.print(f"{screen.num_surprises} trials ran out that were predicted to fit")


def _print_speed_model(console: Console, study: StudyView) -> None:
    """Print the error of the speed model on this study's trials."""
    speed = study.speed
    if speed is None or speed.mean_error is None or speed.worst_error is None:
        return
    console.print(
        f"speed model on {speed.num_compared} trials of this study: mean error "
        f"{speed.mean_error:.1%}, worst {speed.worst_error:+.1%}{_host(speed.host_slowness)}"
    )


def _host(slowness: float | None) -> str:
    """Return how much slower the host is than the model assumes; empty without a difference."""
    if slowness in (None, 1.0):
        return ""
    return f"; by the trials, what waits for Python takes {slowness:.1f} times as long here"


def _print_failed_confirmations(console: Console, study: StudyView) -> None:
    for failed in study.confirmations:
        if failed.failure is not None:
            console.print(
                f"trial {failed.winner} failed its confirmation: {failed.failure}", markup=False
            )


def _print_verdict(console: Console, study: StudyView, confirmation: Confirmation) -> None:
    exported = study.exported
    assert exported is not None
    _print_failed_confirmations(console, study)
    if confirmation.keeps_baseline:
        what = (
            "the model's error" if study.setup.evaluator == EvaluatorKind.MODELLED else "the spread"
        )
        nothing = f"nothing beats {exported.candidate.source} beyond {what}"
        is_yours = not study.setup.base or exported.candidate.source == USERS_OWN
        console.print(f"[bold]keep yours[/bold]: {nothing}" if is_yours else nothing)
    elif confirmation.baseline is None:
        console.print("no baseline fits under the ceiling, so there is nothing to compare with")
    elif (ratio := confirmation.ratio) is not None:
        predicted = ", predicted" if study.setup.evaluator == EvaluatorKind.MODELLED else ""
        console.print(f"[bold]{ratio.mean - 1:+.1%}[/bold] over the best baseline{predicted}")
    else:
        console.print(
            "the best baseline fitted in the search and failed in the confirmation, so there is "
            f"nothing to compare with: {confirmation.baseline_failure}",
            markup=False,
        )
    _print_own(console, study, exported)
    error = composition_error(exported, confirmation)
    if error is not None:
        console.print(
            f"its tokens/s in the search, composed from short steps, was {error:+.1%} off"
        )


def _print_own(console: Console, study: StudyView, exported: TrialRecord) -> None:
    """Print the result of the user's own config, where another one is exported."""
    # A base without a micro batch is tried with several.
    own = [r for r in study.records if r.candidate.source == USERS_OWN]
    printed = {exported.number, study.confirmations[-1].baseline}
    if not own or printed & {record.number for record in own}:
        return
    best = best_of(own)
    if best is None or best.outcome is None:
        words, trial = status_word(own[-1]), own[-1].number
    else:
        speed, trial = best.outcome.tokens_per_s.mean, best.number
        words = f"{speed:,.0f} tokens/s in the search, {best.outcome.evaluator}"
    console.print(f"your --base: {words} (trial {trial})", markup=False)


def _print_target(console: Console, target: Mapping[str, Any]) -> None:
    """Print the prediction for the exported config on `--target-gpus`."""
    gpus, batch = target["gpus"], target["global_batch_size"]
    by = f"{target['evaluator']}, corrected by {target['corrected_by_trials']} trials"
    speed, memory = target["tokens_per_s"], target.get("memory")
    if speed is None or memory is None:
        console.print(f"on {gpus} GPUs: {target['problem']}", markup=False)
        return
    console.print(
        f"predicted on {gpus} GPUs, global batch {batch} ({by}): {speed['value']:,.0f} tokens/s "
        f"({speed['low']:,.0f} to {speed['high']:,.0f}), peak "
        f"{format_gib(memory['peak_bytes'])} of {format_gib(memory['ceiling_bytes'])}, "
        f"{target['communication_share']:.0%} of a step waits for the wire",
        markup=False,
    )
    if target["problem"] is not None:
        console.print(f"  {target['problem']}", markup=False)
    moves, best = target["moves"], target["best"]
    if not moves:
        console.print("  no searched key is expected to move there", markup=False)
        return
    here = "" if best["ratio_here"] is None else f"; on the study's: {best['ratio_here']:.2f}"
    console.print(
        f"  expected to move there, for {best['ratio']:.2f} times that speed "
        f"({best['ratio_low']:.2f} to {best['ratio_high']:.2f}{here}):",
        markup=False,
    )
    for key, move in moves.items():
        console.print(
            f"    {key}: {_setting(move['from'])} -> {_setting(move['to'])}", markup=False
        )


def _setting(value: Any) -> str:
    if value is None:
        return "not set"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _print_lint(console: Console, findings: Sequence[Mapping[str, Any]]) -> None:
    """Print the errors and warnings of `autotune gate` about the exported config."""
    for finding in findings:
        if finding["severity"] != Severity.NOTE:
            console.print(
                f"  {finding['severity']}: {finding['message']} ({finding['rule']})", markup=False
            )


def _print_model_settings(console: Console, settings: Mapping[str, Any]) -> None:
    """Print the settings of the model, for which a ds_config has no key."""
    console.print("set in your script, ds_config has no key for it:")
    for name, value in settings.items():
        how = _HUGGING_FACE.get(name, {}).get(value, "")
        console.print(f"  {name}: {value}" + (f"  ({how})" if how else ""), markup=False)


def _print_launcher_settings(console: Console, record: Mapping[str, Any]) -> None:
    """Print the CPU threads of a rank and how to set them, where the optimizer runs on the CPU."""
    threads = record["launcher_settings"].get(VARIABLE)
    zero = record["ds_config"].get("zero_optimization") or {}
    device = (zero.get("offload_optimizer") or {}).get("device", "none")
    if threads is None or device == "none":
        return
    origin = record["environment"].get(THREADS_ORIGIN, "as in the study")
    console.print(
        f"set in your launcher: {VARIABLE}={threads} ({origin}); the offloaded optimizer's speed "
        "depends on it:",
        markup=False,
    )
    for command in launch_commands(threads).values():
        console.print(f"  {command}", markup=False)


def _print_nothing_fits(console: Console, study: StudyView) -> None:
    if study.counts.get("complete"):
        _print_failed_confirmations(console, study)
        console.print("nothing is confirmed; continue with --resume")
        return
    which = (
        "is predicted to run"
        if study.setup.evaluator == EvaluatorKind.MODELLED
        else "ran to its end"
    )
    console.print(
        f"nothing fits: no trial {which} under the ceiling. Give more --gpus, a higher "
        "--memory-ceiling, a shorter --seq-len, or more --trials"
    )
    for record in study.records:
        if record.outcome is not None and record.outcome.failure is not None:
            console.print(
                f"  {record.number}: {record.outcome.status}: {record.outcome.failure.reason}",
                markup=False,
            )
