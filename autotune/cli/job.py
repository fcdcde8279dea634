"""`autotune job`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.job_options import with_job_options
from autotune.job.job import Job


@with_job_options
def job(
    ds_config: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DS_CONFIG]", help="The config of the run, in any form that the gate reads."
        ),
    ] = None,
    *,
    job: Job,
    job_file: Path | None = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the facts as one JSON object.")
    ] = False,
) -> None:
    """Print the job that `run`, `plan` and `gate` resolve, and the origin of each fact.

    The sources, in order of precedence: option, job file (autotune.yaml), ds_config, --hf-args,
    record, preset.
    """
    from autotune.job.base import read_base
    from autotune.job.resolve import launcher_of, resolve_job
    from autotune.report.job import print_job

    subject = None
    if ds_config is not None:
        subject = read_base(ds_config, launcher=launcher_of(job, job_file))
    resolved = resolve_job(job, subject=subject, job_file=job_file)
    if as_json:
        print(json.dumps(resolved.to_json(), indent=2))
    else:
        print_job(resolved)
