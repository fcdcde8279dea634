"""`autotune plan`."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from autotune.cli.job_options import with_job_options
from autotune.job.job import WHERE, Job

_OUTPUT = "Output"


@with_job_options
def plan(
    ds_config: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DS_CONFIG]",
            help="The config to plan, in any form that the gate reads; with --space its base.",
        ),
    ] = None,
    *,
    job: Job,
    job_file: Path | None = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            help="Devices of the whole job, one rank each: 1 to 4096. Several, such as 8,64,512: "
            "how the best config, its speed and its cost change.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    space: Annotated[
        str | None,
        typer.Option(help="Plan a search space instead: a name in search_spaces/, or a YAML file."),
    ] = None,
    tokens: Annotated[
        float | None,
        typer.Option(
            help="With several numbers of GPUs: a budget, such as 1e12, to print its cost."
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Fail too if memory is not judged.", rich_help_panel=_OUTPUT),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print the result as one JSON object.", rich_help_panel=_OUTPUT
        ),
    ] = False,
) -> None:
    """Predict memory and speed, itemised, without any device.

    For a DS_CONFIG: the phase of a step with the peak, its items, and whether it fits. For a search
    space: what fits, and the smallest number of GPUs on which anything fits. Exit code 0 if it fits
    or is not judged (a space, or several numbers of GPUs: if anything fits), 1 if not, 2 if the
    call or a file is wrong.
    """
    from autotune.planning import (
        PlanRequest,
        plan_config,
        plan_scale_out,
        plan_space,
        read_counts,
    )
    from autotune.predict.memory.fit import Answer
    from autotune.report.plan import print_config_plan, print_space_plan
    from autotune.report.scale_out import print_scale_out_plan

    counts = (None,) if gpus is None else read_counts(gpus, nodes=job.nodes, tokens=tokens)
    request = PlanRequest(
        job=replace(job, gpus=counts[0]), job_file=job_file, ds_config=ds_config, space=space
    )
    result: Any
    show: Any
    passes = True
    if len(counts) > 1:
        result, show = plan_scale_out(request, counts, tokens=tokens), print_scale_out_plan
    elif space is not None:
        result, show = plan_space(request), print_space_plan
    else:
        result, show = plan_config(request), print_config_plan
        passes = not strict or result.answer.answer is not Answer.NOT_JUDGED
    if as_json:
        print(json.dumps(result.to_json(), indent=2))
    else:
        show(result)
    if not (result.fits and passes):
        raise typer.Exit(1)
