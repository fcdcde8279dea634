"""`autotune replay`."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def replay(
    landscape: Annotated[
        str, typer.Argument(help="A landscape file, or the name or folder of a study.")
    ],
    sampler: Annotated[
        list[str] | None,
        typer.Option(help="tpe or random; repeat it to compare. [default: both]"),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Launches of each search.")] = 30,
    seeds: Annotated[int, typer.Option(min=1, help="Searches per sampler.")] = 10,
    save: Annotated[
        Path | None, typer.Option(help="Write the landscape as a compact file, without a search.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object.")
    ] = False,
) -> None:
    """Repeat searches on recorded outcomes, without any device.

    The search proposes as in a study; each proposal is replaced by the nearest recorded one, and
    gets its recorded outcome. Use it to compare samplers, or to try changes to the search, in
    seconds.
    """
    from autotune.replay import compare as steps
    from autotune.report.sampler_comparison import print_replays

    opened = steps.open_landscape(landscape)
    if save is not None:
        opened.write(save)
        print(f"{save}: {len(opened.trials)} outcomes, {save.stat().st_size:,} bytes")
        return
    replays = steps.replay(
        opened, samplers=sampler or ["tpe", "random"], num_seeds=seeds, num_trials=trials
    )
    if note := steps.cut_short(opened, replays, num_trials=trials):
        print(f"note: {note}", file=sys.stderr)
    if as_json:
        print(steps.as_json(opened, replays))
    else:
        print_replays(opened, replays)
