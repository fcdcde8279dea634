"""Prints the job of `autotune job`."""

from dataclasses import fields

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from autotune.job.job import Job
from autotune.job.resolve import ResolvedJob


def print_job(resolved: ResolvedJob) -> None:
    """Print every known fact with its origin, in the order of the options."""
    console = Console(highlight=False)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("fact", "value", "origin"):
        table.add_column(column)
    names = [field.name for field in fields(Job)]
    others = [name for name in resolved.facts if name not in names]
    for name in (*names, *others):
        if (fact := resolved.facts.get(name)) is not None:
            style = "yellow" if fact.origin.is_assumed else ""
            value = Text(str(fact.value))
            table.add_row(name.replace("_", "-"), value, Text(fact.origin.value, style=style))
    console.print(table)
    missing = [
        option
        for option, value in (
            ("--model", resolved.shape),
            ("--gpus", resolved.site.gpus),
            ("--gpu-type", resolved.site.device),
        )
        if value is None
    ]
    if missing:
        console.print(f"not known: {', '.join(missing)}")
