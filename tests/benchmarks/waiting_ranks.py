"""How much longer a step takes where ranks wait for each other at every collective.

``python -m tests.benchmarks.waiting_ranks`` reads when one emulated rank launched each collective
of its steps (tests/data/h200_launch_gaps.jsonl.gz, a stand-in that noted it, one H200), lets some
of these steps stand for the ranks of one step, and prints how much longer they take together than
one of them alone. That is what emulation leaves out, if the hosts of ranks are slow independently
of each other.
"""

import gzip
import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean

from autotune.study.step_times import num_warmup_steps
from tests.benchmarks.emulated_pairs import PAIRS
from tests.predict.rows import DATA

FILE = DATA / "h200_launch_gaps.jsonl.gz"
_AHEAD = 2
"""Collectives that may be under way when a rank goes on: stage 3 waits for the third last fetch and
reduction (`__max_ongoing_fetch_events` and `max_param_reduce_events` of deepspeed 0.19.8)."""

Gaps = Sequence[float]
"""Seconds from the launch of one collective to the next, from the step's begin to its end."""


def steps_of(file: Path = FILE) -> dict[int, list[Gaps]]:
    """Return the steps of each pair of `emulated_pairs`, without the warm-up."""
    found: dict[int, list[Gaps]] = {}
    for line in gzip.decompress(file.read_bytes()).decode("utf-8").splitlines():
        step = json.loads(line)
        found.setdefault(step["pair"], []).append([ms / 1e3 for ms in step["launch_gap_ms"]])
    return {pair: steps[num_warmup_steps([*map(sum, steps)]) :] for pair, steps in found.items()}


def together_s(ranks: Sequence[Gaps], *, ahead: int = _AHEAD) -> float:
    """Return how long a step takes in which no rank continues before all have launched.

    Args:
        ranks: what each rank's host does between its launches.
        ahead: the last collectives that a rank need not wait for.

    Example:
        >>> together_s([[1, 3, 1, 3], [3, 1, 3, 1]], ahead=0)
        12.0
        >>> together_s([[1, 3, 1, 3], [3, 1, 3, 1]], ahead=3)
        8.0
    """
    at = [0.0] * len(ranks)
    launched: list[float] = []
    """When each collective had been launched by all."""
    for index, gaps in enumerate(zip(*ranks, strict=True)):
        free_at = launched[index - 1 - ahead] if index > ahead else 0.0
        at = [max(own, free_at) + gap for own, gap in zip(at, gaps, strict=True)]
        launched.append(max(at))
    return max(at)


def stretch(steps: Sequence[Gaps], *, ranks: int) -> float:
    """Return how much longer a step takes for so many ranks than for one, over all choices."""
    together = fmean(together_s(some) for some in combinations(steps, ranks))
    return together / fmean(map(sum, steps))


def main() -> None:
    """Print a row per pair."""
    for number, steps in steps_of().items():
        pair = PAIRS[number]
        alone = fmean(map(sum, steps))
        two, four = (stretch(steps, ranks=ranks) - 1 for ranks in (2, 4))
        print(
            f"pair {number}: {pair.model}, stage {pair.stage}, {alone:.3f} s alone; "
            f"{two:+.1%} with two ranks, {four:+.1%} with four"
        )


if __name__ == "__main__":
    main()
