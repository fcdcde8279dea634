"""Prints a plan over several numbers of GPUs."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from autotune.job.ceiling import GIB, format_gib
from autotune.planning import ScaleOutPlan
from autotune.planning.scale_out import World
from autotune.predict.links.communication import CATALOGUE

_SHOWN = (
    "zero_optimization.stage",
    "train_micro_batch_size_per_gpu",
    "zero_optimization.offload_optimizer.device",
    "zero_optimization.offload_param.device",
    "model.activation_checkpointing",
)
"""Keys with a column of their own."""


def print_scale_out_plan(plan: ScaleOutPlan) -> None:
    """Print a line per number of GPUs, the keys that change, and where communication dominates."""
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"{plan.model} on {plan.device.name}, {plan.network.name} between nodes; everything "
        "predicted"
    )
    title = f"the fastest of space {plan.space} that fits" if plan.space else "the ds_config"
    table = Table(title=title, box=SIMPLE_HEAD, padding=0, pad_edge=False)
    for column in ("GPUs", "stage", "batch", "acc", "ckpt", "offload"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("GiB", "tokens/s", "+", "TFLOPS", "MFU", "sent"):
        table.add_column(column, justify="right", no_wrap=True)
    if plan.tokens is not None:
        table.add_column("GPU-hours", justify="right", no_wrap=True)
    for world in plan.worlds:
        if world.throughput is not None:
            table.add_row(*_cells(world, tokens=plan.tokens))
    console.print(table)
    console.print(
        "acc: accumulation; ckpt: activation checkpointing; GiB: of a rank; +: how much faster it "
        "may be, and by the same factor slower; sent: share of a step that waits for communication"
    )
    for world in plan.worlds:
        _print_notes(console, world)
    _print_moves(console, plan)
    _print_sending(console, plan)


def _print_notes(console: Console, world: World) -> None:
    """Print why a line is missing or does not run, and the source of its links."""
    gpus = f"{world.gpus:,} GPUs"
    if world.problem:
        console.print(f"{gpus}: {world.problem}", markup=False)
    elif not world.fits:
        console.print(f"{gpus}: does not fit: {_why(world)}")
    for error in world.errors:
        console.print(f"{gpus}: autotune gate reports an error: {error.message}", markup=False)
    if world.throughput is not None and world.throughput.links != CATALOGUE:
        console.print(f"{gpus}: links by {world.throughput.links}", markup=False)


def _cells(world: World, *, tokens: float | None) -> tuple[str, ...]:
    assert world.training is not None
    assert world.estimate is not None
    assert world.throughput is not None
    training, speed = world.training, world.throughput
    cells = (
        f"{world.gpus:,}",
        str(training.zero.stage),
        str(training.micro_batch_size),
        str(training.accumulation),
        "yes" if training.activation_checkpointing else "no",
        _offload(world),
        f"{world.estimate.device.needed_bytes / GIB:.0f}",
        _speed(speed.tokens_per_s),
        f"{speed.tokens_per_s_high / speed.tokens_per_s - 1:.0%}",
        f"{speed.tflops_per_gpu:.0f}",
        f"{speed.mfu:.0%}",
        f"{world.communication_share:.0%}",
    )
    return cells if tokens is None else (*cells, f"{world.gpu_hours(tokens):,.0f}")


def _speed(tokens_per_s: float) -> str:
    return f"{tokens_per_s:,.0f}" if tokens_per_s < 1e4 else f"{tokens_per_s / 1e3:,.0f}k"


def _why(world: World) -> str:
    assert world.estimate is not None
    device, host = world.estimate.device, world.estimate.host
    needs = []
    if device.fits is False:
        needs.append(
            f"a rank needs {format_gib(device.needed_bytes)} of "
            f"{format_gib(device.ceiling_bytes or 0)}"
        )
    if host.fits is False:
        # The model's error included, as in the answer about the host.
        needs.append(
            f"the ranks of a node need {format_gib(host.total_bytes * (1 + host.margin))} of "
            f"{format_gib(host.ceiling_bytes or 0)} of host memory"
        )
    return ", ".join(needs)


def _offload(world: World) -> str:
    assert world.training is not None
    zero = world.training.zero
    places = [zero.offload_optimizer.device, zero.offload_param.device]
    return "no" if places == ["none", "none"] else "+".join(p for p in places if p != "none")


def _print_moves(console: Console, plan: ScaleOutPlan) -> None:
    """Print the keys without a column that differ between the best configs."""
    found = [world.values for world in plan.worlds if world.values is not None]
    keys = sorted({key for values in found for key in values} - set(_SHOWN))
    for key in keys:
        values = [str(values.get(key, "-")) for values in found]
        if len(set(values)) > 1:
            console.print(f"moves: {key}: {', '.join(values)}")


def _print_sending(console: Console, plan: ScaleOutPlan) -> None:
    shares = [w.communication_share for w in plan.worlds if w.throughput is not None]
    if (gpus := plan.communication_takes_over_at) is not None:
        console.print(
            f"communication takes over at {gpus:,} GPUs: there a step waits for it longer than for "
            "anything else"
        )
    elif shares:
        console.print(f"communication takes over nowhere here: {max(shares):.0%} at most")
