"""What `autotune run` prints of `--target-gpus`."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from autotune.job.ceiling import format_gib


def print_target(console: Console, target: Mapping[str, Any]) -> None:
    """Print what the exported config should do on other ranks; all of it is predicted."""
    gpus, batch = target["gpus"], target["global_batch_size"]
    by = f"{target['evaluator']}, corrected by {target['corrected_by_trials']} trials"
    speed, memory = target["tokens_per_s"], target.get("memory")
    if speed is None or memory is None:
        console.print(f"on {gpus} GPUs: {target['problem']}", markup=False)
        return
    console.print(
        f"predicted on {gpus} GPUs, global batch {batch} ({by}): {speed['value']:,.0f} tokens/s "
        f"({speed['low']:,.0f} to {speed['high']:,.0f}), peak "
        f"{format_gib(memory['peak_bytes'])} of {format_gib(memory['ceiling_bytes'])}, "
        f"{target['communication_share']:.0%} of a step waits for the wire",
        markup=False,
    )
    if target["problem"] is not None:
        console.print(f"  {target['problem']}", markup=False)
    moves, best = target["moves"], target["best"]
    if not moves:
        console.print("  no searched key is expected to move there", markup=False)
        return
    here = "" if best["ratio_here"] is None else f"; on the study's: {best['ratio_here']:.2f}"
    console.print(
        f"  expected to move there, for {best['ratio']:.2f} times that speed "
        f"({best['ratio_low']:.2f} to {best['ratio_high']:.2f}{here}):",
        markup=False,
    )
    for key, move in moves.items():
        console.print(f"    {key}: {_said(move['from'])} -> {_said(move['to'])}", markup=False)


def _said(value: Any) -> str:
    if value is None:
        return "not set"
    return str(value).lower() if isinstance(value, bool) else str(value)
