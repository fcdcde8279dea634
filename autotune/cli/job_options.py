"""Makes the options of a job from its fields: the same for `run`, `plan` and `gate`."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from autotune.job.job import WHERE, Job

_JOB_FILE = Annotated[
    Path | None,
    typer.Option(
        "--job",
        metavar="FILE",
        help="A job file: the names of these options as keys. [default: autotune.yaml here, if "
        "there is one]",
        rich_help_panel=WHERE,
    ),
]


def with_job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that takes the options of a job instead of its parameter `job`.

    The command has the parameters `job` and `job_file`; an option of the same name that it declares
    itself takes precedence.
    """
    signature = inspect.signature(command)
    own = get_type_hints(command, include_extras=True)
    options = _options(without=frozenset(signature.parameters))

    def taking_options(**values: Any) -> None:
        described = {parameter.name: values.pop(parameter.name) for parameter in options}
        command(job=Job(**described), **values)

    kept = [
        parameter.replace(annotation=_JOB_FILE if name == "job_file" else own[name])
        for name, parameter in signature.parameters.items()
        if name != "job"
    ]
    # Arguments come first, then the options of the job, then all others.
    parameters = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*options, *kept)
    ]
    taking_options.__signature__ = (  # type: ignore[attr-defined]
        signature.replace(parameters=parameters)
    )
    taking_options.__annotations__ = {p.name: p.annotation for p in parameters}
    taking_options.__name__, taking_options.__doc__ = command.__name__, command.__doc__
    return taking_options


def _options(*, without: frozenset[str]) -> list[inspect.Parameter]:
    hints = get_type_hints(Job)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                hints[field.name],
                typer.Option(help=field.metadata["help"], rich_help_panel=field.metadata["panel"]),
            ],
        )
        for field in fields(Job)
        if field.name not in without
    ]
