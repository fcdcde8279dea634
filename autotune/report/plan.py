"""Prints the plan of a ds_config or of a search space."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from autotune.job.ceiling import GIB, format_gib
from autotune.job.site import DEFAULT_CEILING
from autotune.planning import ConfigPlan, SpacePlan
from autotune.planning.memory_answer import format_odds
from autotune.planning.space import SpaceLine
from autotune.predict.memory.estimate import DeviceEstimate, HostEstimate, MemoryEstimate
from autotune.predict.memory.fit import Answer
from autotune.predict.throughput import Throughput
from autotune.predict.training_job import Training

_SMALL_SHARE = 0.002
"""Items below this share of the peak are summed in one line."""


def print_config_plan(plan: ConfigPlan) -> None:
    """Print memory and speed of one ds_config, and the answer."""
    console = Console(highlight=False, soft_wrap=True)
    if plan.training is None or plan.estimate is None:
        name = plan.resolved.job.model or "the model"
        console.print(f"{name} on {plan.resolved.site.gpus} x {plan.device.name}", markup=False)
    else:
        _print_predictions(console, plan, plan.training, plan.estimate)
    for error in plan.errors:
        console.print(f"autotune gate reports an error: {error.message}", markup=False)
    for text in plan.answer.assumed:
        console.print(f"assumed: {text}", markup=False)
    _print_answer(console, plan)


def _print_predictions(
    console: Console, plan: ConfigPlan, training: Training, estimate: MemoryEstimate
) -> None:
    device = estimate.device
    checkpointing = "with" if training.activation_checkpointing else "without"
    console.print(
        f"{training.model.name} on {plan.resolved.site.gpus} x {plan.device.name}, ZeRO "
        f"{training.zero.stage}, {training.precision}, micro batch {training.micro_batch_size} x "
        f"{training.seq_len} tokens, accumulation {training.accumulation}, global batch "
        f"{plan.batch['train_batch_size']}, {checkpointing} activation checkpointing, "
        f"{training.attn_implementation} attention"
    )
    for key, size in plan.replaced.items():
        console.print(
            f"--global-batch-size makes {key} {plan.batch[key]}; the config has {size}",
            markup=False,
        )
    where = f"{device.part}, {device.detail}" if device.detail else device.part
    console.print(_item_table(device, where))
    _print_device(console, device)
    _print_host(console, estimate.host)
    if plan.throughput is not None:
        _print_speed(console, plan.throughput)
    if training.zero.offload_optimizer.enabled:
        console.print(f"offloaded optimizer on {plan.resolved.site.cpu_threads}", markup=False)
    _print_unmeasured(console, estimate)
    console.print(f"smallest number of GPUs that fits: {_count(plan.smallest_gpus)}")


def _print_answer(console: Console, plan: ConfigPlan) -> None:
    answer, site = plan.answer, plan.resolved.site
    if answer.answer is Answer.NOT_JUDGED:
        reason = (answer.reason or "").removeprefix("memory is not judged: ")
        console.print(f"[bold]memory not judged[/bold]: {escape(reason)}")
        if len(answer.fits) > 1:
            console.print("it fits only with activation checkpointing")
        return
    if answer.shown is not None and answer.shown.is_pressed:
        console.print("it runs only by giving back the allocator's cache in every step")
    if answer.is_near_edge:
        console.print(f"near the edge: the odds that it runs are {format_odds(answer.odds)}")
    if answer.is_above_ceiling and not site.ceiling_is_given:
        console.print(
            f"above the default ceiling of {DEFAULT_CEILING} "
            f"({format_gib(site.ceiling_bytes or 0)}), which `autotune run` enforces"
        )
    if answer.answer is Answer.FITS:
        console.print("[bold]fits[/bold]")
    elif plan.estimate is not None:
        console.print(f"[bold]does not fit[/bold]: shrink {plan.estimate.device.advice}")


def print_space_plan(plan: SpacePlan) -> None:
    """Print which lines of a search space fit."""
    console = Console(highlight=False, soft_wrap=True)
    workload = plan.workload
    ceiling = plan.lines[0].estimate.device.ceiling_bytes if plan.lines else None
    console.print(
        f"{workload.model.name} on {workload.world_size} x {plan.device.name}, global batch "
        f"{workload.global_batch_size} x {workload.seq_len} tokens, {workload.precision}, ceiling "
        f"{format_gib(ceiling or 0)} a rank; ranges at DeepSpeed's defaults"
    )
    table = Table(title=f"space {plan.space}; sizes in GiB", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in ("stage", "optimizer", "weights", "ckpt"):
        table.add_column(column, no_wrap=True)
    for column in ("fit", "batch", "needs", "host", "tokens/s", "MFU"):
        table.add_column(column, justify="right", no_wrap=True)
    for line in plan.lines:
        table.add_row(*_cells(line))
    console.print(table)
    console.print(
        "optimizer, weights: where they are offloaded to; ckpt: activation checkpointing; fit: how "
        "many proposals; batch: the largest micro batch that fits; host: of one node"
    )
    console.print(f"offloaded optimizers on {plan.cpu_threads}", markup=False)
    console.print(f"smallest number of GPUs on which anything fits: {_count(plan.smallest_gpus)}")


def _item_table(device: DeviceEstimate, where: str) -> Table:
    table = Table(title=f"device memory at its peak ({where})")
    table.add_column("item")
    table.add_column("GiB", justify="right")
    table.add_column("share", justify="right")
    total, rest = device.peak_allocated_bytes, 0
    for name, size in sorted(device.items.items(), key=lambda item: -item[1]):
        if size < _SMALL_SHARE * total:
            rest += size
            continue
        table.add_row(_label(name), f"{size / GIB:.2f}", f"{size / total:.0%}")
    if rest:
        table.add_row("others", f"{rest / GIB:.2f}", f"{rest / total:.0%}")
    return table


def _label(name: str) -> str:
    return name.replace("_", " ")


def _print_device(console: Console, device: DeviceEstimate) -> None:
    # At stage 2 ranks differ; elsewhere rank 0 stands for all.
    whose = f" on rank {device.rank}, which holds the most" if device.rank else ""
    console.print(
        f"peak allocated {format_gib(device.peak_allocated_bytes)}{whose}, outside the allocator "
        f"{format_gib(device.outside_bytes)}, margin {device.margin:.0%}: needs "
        f"{format_gib(device.needed_bytes)} of {format_gib(device.ceiling_bytes or 0)}"
    )
    if device.limit_bytes is not None:
        lost = device.limit_bytes - device.peak_allocated_bytes
        console.print(
            f"fragmentation adds {format_gib(lost)}: the allocator must be allowed to reserve "
            f"{format_gib(device.limit_bytes)}"
        )
    if device.judged is not None and device.judged.ran_out is not None:
        ran_out = device.judged.ran_out
        console.print(
            f"runs out in the {ran_out.part} {ran_out.detail}".rstrip()
            + f": {format_gib(ran_out.asked_bytes)} asked with "
            f"{format_gib(ran_out.allocated_bytes)} allocated and "
            f"{format_gib(ran_out.reserved_bytes)} reserved"
        )
    if device.peak_reserved_bytes is not None:
        console.print(
            f"peak reserved, with the allocator's cache: {format_gib(device.peak_reserved_bytes)}"
        )
    parts = ", ".join(f"{p.part} {p.allocated_bytes / GIB:.2f}" for p in device.parts)
    if parts:
        console.print(f"peaks by part of the step, GiB: {parts}")


def _print_host(console: Console, host: HostEstimate) -> None:
    known = "" if host.ceiling_bytes is None else f" of {format_gib(host.ceiling_bytes)}"
    nvme = f", {format_gib(host.nvme_bytes)} of NVMe a rank" if host.nvme_bytes else ""
    console.print(
        f"host memory: {format_gib(host.rank_bytes)} a rank, {format_gib(host.total_bytes)} for "
        f"{host.local_ranks} ranks of a node{known}{nvme}"
    )


def _print_speed(console: Console, throughput: Throughput) -> None:
    step_s = throughput.step_s
    parts = ", ".join(
        f"{name} {seconds / step_s:.0%}"
        for name, seconds in throughput.items.items()
        if seconds > _SMALL_SHARE * step_s
    )
    console.print(
        f"speed, predicted: {throughput.tokens_per_s:,.0f} tokens/s of all ranks "
        f"({throughput.tokens_per_s_low:,.0f} to {throughput.tokens_per_s_high:,.0f}), "
        f"{step_s:.2f} s a step ({parts}), {throughput.tflops_per_gpu:.0f} TFLOPS a GPU (MFU "
        f"{throughput.mfu:.0%}); links by {throughput.links}"
    )


def _print_unmeasured(console: Console, estimate: MemoryEstimate) -> None:
    if estimate.unmeasured:
        console.print(f"never measured, so the margin is wider: {', '.join(estimate.unmeasured)}")


def _cells(line: SpaceLine) -> tuple[str, ...]:
    values = {key.removeprefix("zero_optimization."): v for key, v in line.values.items()}
    device, best = line.estimate.device, line.best
    micro_batch = best.values.get("train_micro_batch_size_per_gpu") if best else None
    return (
        str(values.get("stage", "")),
        str(values.get("offload_optimizer.device", "")),
        str(values.get("offload_param.device", "")),
        "yes" if values.get("model.activation_checkpointing") else "no",
        f"{line.num_fitting}/{line.num_proposals}",
        str(micro_batch or "-") if best else "-",
        f"{device.needed_bytes / GIB:.0f}",
        f"{line.estimate.host.total_bytes / GIB:.0f}",
        f"{line.throughput.tokens_per_s:,.0f}" if best else "-",
        f"{line.throughput.mfu:.0%}" if best else "-",
    )


def _count(gpus: int | None) -> str:
    return "none up to 4,096" if gpus is None else f"{gpus:,}"
