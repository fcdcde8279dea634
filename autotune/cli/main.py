"""The `autotune` command."""

import sys

import typer

from autotune import __version__
from autotune.cli.dashboard import dashboard
from autotune.cli.doctor import doctor
from autotune.cli.export import export
from autotune.cli.gate import gate
from autotune.cli.job import job
from autotune.cli.plan import plan
from autotune.cli.probe import probe
from autotune.cli.replay import replay
from autotune.cli.run import run
from autotune.errors import AutotuneError

app = typer.Typer(
    name="autotune",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Rich markup would drop text in brackets: "[default: 2048]".
    rich_markup_mode="markdown",
    help="Finds, reviews and gates the DeepSpeed config of a long training run.",
    epilog="Exit codes: 0 yes; 1 the config fails the gate, or nothing fits; 2 the "
    "call or an input file is wrong; 3 the pool failed; 130 interrupted.",
)
app.command()(run)
app.command()(plan)
app.command()(job)
app.command()(gate)
app.command()(probe)
app.command()(replay)
app.command()(export)
app.command()(dashboard)
app.command()(doctor)


@app.callback(invoke_without_command=True)
def _global(
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    if version:
        print(f"autotune {__version__}")
        raise typer.Exit


def main() -> None:
    """Run the command line; an error that the user can fix is printed without a traceback.

    Typer handles Ctrl-C: exit code 130.
    """
    try:
        app(standalone_mode=True)
    except AutotuneError as error:
        for fault in error.faults:
            print(f"error: {fault}", file=sys.stderr)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
