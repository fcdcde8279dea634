"""`autotune run`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.job_options import with_job_options
from autotune.job.job import Job


@with_job_options
def run(
    *,
    job: Job,
    job_file: Path | None = None,
    base: Annotated[
        Path | None,
        typer.Option(help="Your ds_config: keys that are not searched keep their values."),
    ] = None,
    space: Annotated[
        str, typer.Option(help="Search space: a name in search_spaces/, or a YAML file.")
    ] = "zero",
    trials: Annotated[
        int, typer.Option(min=1, help="Trials to launch, first trials included.")
    ] = 30,
    time_budget: Annotated[
        str | None, typer.Option(help="Launch no trial after this time: 90s, 45m, 2h.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto or cuda: GPUs only. cpu: CPU ranks.")] = "auto",
    evaluator: Annotated[
        str,
        typer.Option(
            help="measured: one device per rank. emulated: one device plays one rank of --gpus, "
            "with real memory and modelled communication. modelled: nothing runs, --gpu-type is "
            "predicted. auto: measured if there are enough devices, else emulated on GPUs."
        ),
    ] = "auto",
    target_gpus: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Ranks of the final run, more than --gpus: predicts the winner's speed and memory "
            "there, and which keys should change.",
        ),
    ] = None,
    timed: Annotated[
        bool,
        typer.Option(
            "--timed/--untimed",
            help="Emulated: collectives take the predicted time of real ranks.",
        ),
    ] = True,
    screen: Annotated[
        bool,
        typer.Option(
            "--screen/--no-screen", help="Do not launch proposals that are predicted not to fit."
        ),
    ] = True,
    sampler: Annotated[str, typer.Option(help="tpe or random.")] = "tpe",
    ray_address: Annotated[
        str | None,
        typer.Option(help="Address of a running Ray cluster. [default: start one on this machine]"),
    ] = None,
    study: Annotated[
        str | None, typer.Option(help="Name of the study and of its folder in studies/.")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(help="Optuna storage URL. [default: SQLite in the study's folder]"),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue --study; repeat the same options.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Seed of sampler, weights and data. [default: random]")
    ] = None,
    confirm_rounds: Annotated[
        int,
        typer.Option(
            min=2,
            help="Runs of winner and baseline each, before the export. Not repeated on --resume "
            "if nothing has changed.",
        ),
    ] = 5,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object.")
    ] = False,
) -> None:
    """Search for the fastest ds_config under a memory ceiling, with short real trials.

    With --evaluator modelled nothing runs: speed and memory are predicted.

    Writes studies/NAME/ds_config.json and record.json, and prints the winner beside the best of
    your config, Hugging Face's "auto" and DeepSpeed's defaults. Exit code 0, also for "keep
    yours"; 1 if nothing fits.
    """
    from autotune.cli.live import live_progress
    from autotune.report.summary import result_json, summarize
    from autotune.search.budget import parse_duration_s
    from autotune.tuning import TuneRequest, tune

    request = TuneRequest(
        job=job,
        job_file=job_file,
        base=base,
        space=space,
        trials=trials,
        time_budget_s=parse_duration_s(time_budget) if time_budget else None,
        device=device,
        evaluator=evaluator,
        target_gpus=target_gpus,
        timed=timed,
        screen=screen,
        sampler=sampler,
        ray_address=ray_address,
        study=study,
        storage=storage,
        resume=resume,
        seed=seed,
        confirm_rounds=confirm_rounds,
    )
    with live_progress(max_trials=trials) as progress:
        result = tune(request, progress)
    if as_json:
        print(json.dumps(result_json(result.study, result.folder, result.record), indent=2))
    else:
        summarize(result.study, result.folder, result.record)
    if result.record is None:
        raise typer.Exit(1)
