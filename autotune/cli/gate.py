"""`autotune gate`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn, TextIO

import typer

from autotune.cli.job_options import with_job_options
from autotune.job.job import Job

if TYPE_CHECKING:
    from autotune.gating.request import GateRequest
    from autotune.gating.result import GateResult

# Panels of `--help`.
_BASELINE, _OUTPUT, _FIXING = "The record", "Output", "Fixing and accepting"


@with_job_options
def gate(
    ds_config: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DS_CONFIG",
            help="JSON, Hjson, an Accelerate YAML or a gpt-neox YAML; - is standard input.",
        ),
    ] = None,
    *,
    job: Job,
    job_file: Path | None = None,
    ask_deepspeed: Annotated[
        bool,
        typer.Option(
            "--ask-deepspeed",
            help="Parse it with the installed DeepSpeed too; takes seconds.",
            rich_help_panel=_OUTPUT,
        ),
    ] = False,
    baseline: Annotated[
        Path | None,
        typer.Option(
            help="A record.json to compare config, job and environment with.",
            rich_help_panel=_BASELINE,
        ),
    ] = None,
    max_age: Annotated[
        str | None,
        typer.Option(help="Largest age of the record: 12h, 30d, 8w.", rich_help_panel=_BASELINE),
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Run the config like the record's, and compare.",
            rich_help_panel=_BASELINE,
        ),
    ] = False,
    max_regression: Annotated[
        str | None,
        typer.Option(
            help="Largest loss of tokens/s: 5%. [default: the record's noise band]",
            rich_help_panel=_BASELINE,
        ),
    ] = None,
    ray_address: Annotated[
        str | None,
        typer.Option(
            help="Address of a running Ray cluster, for --measure. [default: start one here]",
            rich_help_panel=_BASELINE,
        ),
    ] = None,
    output_format: Annotated[
        Literal["text", "json", "junit", "github", "sarif"],
        typer.Option("--format", rich_help_panel=_OUTPUT, help="Format of the output."),
    ] = "text",
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Warnings fail too.", rich_help_panel=_OUTPUT),
    ] = False,
    ignore: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULE", help="Skip this rule; may be repeated.", rich_help_panel=_OUTPUT
        ),
    ] = None,
    explain: Annotated[
        str | None,
        typer.Option(metavar="RULE", help="Print a rule's page and exit.", rich_help_panel=_OUTPUT),
    ] = None,
    list_rules: Annotated[
        bool,
        typer.Option("--list-rules", help="Print every rule and exit.", rich_help_panel=_OUTPUT),
    ] = False,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix", help="Write the config with every safe fix.", rich_help_panel=_FIXING
        ),
    ] = False,
    diff: Annotated[
        bool,
        typer.Option("--diff", help="Print what --fix would change.", rich_help_panel=_FIXING),
    ] = False,
    fix_output: Annotated[
        Path | None,
        typer.Option(
            help="Where --fix writes. [default: the file itself]", rich_help_panel=_FIXING
        ),
    ] = None,
    accepted: Annotated[
        Path | None,
        typer.Option(
            help="YAML or JSON: accepted findings, each with rule, field, reason and optionally "
            "until.",
            rich_help_panel=_FIXING,
        ),
    ] = None,
    write_accepted: Annotated[
        bool,
        typer.Option(
            "--write-accepted",
            help="Add the findings to the file of --accepted.",
            rich_help_panel=_FIXING,
        ),
    ] = False,
) -> None:
    """Check a ds_config before the big run, without a device.

    Facts that are missing are not judged. Exit code 0: no error (with --strict no warning either,
    and memory is judged); 1: the config fails; 2: the call or a file beside the config is wrong.
    """
    from autotune.gating.request import GateRequest, parse_age_h, parse_share

    if explain is not None or list_rules:
        _print_pages(explain)
        return
    names = ds_config or []
    fixing = _Fixing(fix=fix, diff=diff, output=fix_output)
    _require_sense(names, fixing, measure=measure)
    if write_accepted and accepted is None:
        _refuse("--write-accepted: name the file with --accepted FILE")
    new_file = write_accepted and accepted is not None and not accepted.exists()
    request = GateRequest(
        ds_config=names[0],
        job=job,
        job_file=job_file,
        baseline=baseline,
        max_age_h=None if max_age is None else parse_age_h(max_age),
        measure=measure,
        max_regression=None if max_regression is None else parse_share(max_regression),
        ray_address=ray_address,
        ask_deepspeed=ask_deepspeed,
        ignore=frozenset(ignore or ()),
        accepted=None if new_file else accepted,
        note_unused=len(names) == 1,
    )
    shown = sys.stdout if output_format == "text" else sys.stderr
    with _without_collection():
        results = [_gated(replace(request, ds_config=name), fixing, shown) for name in names]
    if write_accepted and accepted is not None:
        results = _accept(results, accepted)
    _print_results(results, output_format, strict=strict)
    if not all(result.passes(strict=strict) for result in results):
        raise typer.Exit(1)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Suspend garbage collection, which takes a tenth of the time of a config."""
    import gc

    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(frozen=True, slots=True)
class _Fixing:
    """What to do with safe fixes."""

    fix: bool
    diff: bool
    output: Path | None


def _require_sense(names: list[str], fixing: _Fixing, *, measure: bool) -> None:
    """Check that the options are valid for the number of configs.

    Raises:
        GateError: they are not; every fault is named.
    """
    from autotune.gating.request import STDIN

    faults = []
    if not names:
        faults.append("nothing to gate: give a DS_CONFIG, or - for standard input")
    if names.count(STDIN) > 1:
        faults.append("-: standard input can be read only once")
    if len(names) > 1 and measure:
        faults.append(f"--measure: runs one config, not {len(names)}")
    if len(names) > 1 and fixing.output is not None:
        faults.append(f"--fix-output {fixing.output}: holds one config, not {len(names)}")
    if fixing.output is not None and not fixing.fix:
        faults.append(f"--fix-output {fixing.output}: needs --fix; add it")
    if STDIN in names and fixing.fix and fixing.output is None:
        faults.append("--fix: standard input cannot be written to; add --fix-output FILE")
    if faults:
        _refuse(*faults)


def _refuse(*faults: str) -> NoReturn:
    from autotune.errors import GateError

    raise GateError(*faults)


def _gated(request: "GateRequest", fixing: _Fixing, shown: TextIO) -> "GateResult":
    """Judge one config, after its fixes with --fix."""
    from autotune.gating import gate
    from autotune.gating.fixes.fix import fix_config
    from autotune.gating.inputs import read_config

    text = read_config(request.ds_config)
    if fixing.fix or fixing.diff:
        fixed = fix_config(request, text, rewrite=fixing.output is not None)
        shown.write(fixed.diff)
        if fixed.loses_comments:
            print(f"{fixing.output}: rewritten without comments", file=sys.stderr)
        if fixing.fix:
            target = fixing.output or Path(request.ds_config)
            if fixed.after != fixed.before or fixing.output is not None:
                _write(target, fixed.after)
            text = fixed.after.encode()
            request = replace(request, ds_config=str(target))
    return gate(request, text=text, on_start=_print_progress)


def _print_progress(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        _refuse(f"{path}: cannot be written: {error.strerror}")


def _accept(results: list["GateResult"], path: Path) -> list["GateResult"]:
    """Add the findings to the file of accepted ones, and return the results without them."""
    from autotune.gating.accepted import read_accepted, split_accepted, write_accepted

    added = write_accepted(path, [f for result in results for f in result.findings])
    print(f"{path}: {added} findings added; write into it why they are accepted", file=sys.stderr)
    entries = read_accepted(path)
    now = []
    for result in results:
        counting, accepted = split_accepted(result.findings, entries, note_unused=False)
        now.append(
            replace(result, findings=tuple(counting), accepted=(*result.accepted, *accepted))
        )
    return now


def _print_results(results: list["GateResult"], output_format: str, *, strict: bool) -> None:
    from autotune.report.gate import WRITERS, print_result

    if output_format == "text":
        for result in results:
            print_result(result)
    else:
        sys.stdout.write(WRITERS[output_format](results, strict=strict))


def _print_pages(identifier: str | None) -> None:
    from autotune.gating.rules import all_rules, rule_or_raise
    from autotune.report.gate import print_page, print_rules

    if identifier is not None:
        print_page(rule_or_raise(identifier, option="--explain"))
    else:
        print_rules(list(all_rules().values()))
