"""Prints the samplers that `autotune replay` compares."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from autotune.replay.compare import WITHIN, SamplerRuns, describe
from autotune.replay.landscape import Landscape

_SHOWN = (10, 20, 30, 50, 100)


def print_replays(landscape: Landscape, replays: Sequence[SamplerRuns]) -> None:
    """Print the landscape, and how each sampler performs on it."""
    summary, console = describe(landscape), Console(highlight=False)
    if not console.is_terminal:
        console.width = 140  # a log has no width; wrapped tables are hard to read there
    console.print(
        f"{summary['model']} on {summary['gpus']} ranks: {summary['num_points']} recorded outcomes "
        f"({summary['evaluator']}), {summary['num_complete']} complete; the best: "
        f"{summary['best_tokens_per_s']:,.0f} tokens/s"
    )
    launches = max(len(curve) for replayed in replays for curve in replayed.curves)
    shown = [n for n in _SHOWN if n < launches] + [launches]
    table = Table(title="best so far as a share of the best recorded: median (lowest) over seeds")
    for name in (
        "sampler",
        "seeds",
        *(f"after {n}" for n in shown),
        f"median launches to {1 - WITHIN:.0%}",
    ):
        table.add_column(name)
    for replayed in replays:
        table.add_row(
            replayed.sampler,
            str(len(replayed.curves)),
            *(f"{mid:.3f} ({low:.3f})" for mid, low, _ in map(replayed.best_after, shown)),
            _launches(replayed),
        )
    console.print(table)


def _launches(replayed: SamplerRuns) -> str:
    middle = replayed.median_launches_to_good
    launches = "never" if middle is None else f"{middle:g}"
    return f"{launches}; {replayed.num_good} of {len(replayed.curves)} seeds"
