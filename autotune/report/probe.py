"""Prints the measurements of `autotune probe`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

_GB = 1e9


def print_probe(found: Mapping[str, Any], path: Path) -> None:
    """Print the measured times by size, and rates.

    The rate of a collective is its bytes over its time ("algorithm bandwidth" in NCCL's tests).
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 140  # a log has no width; wrapped tables are hard to read there
    console.print(
        f"{found['world_size']} ranks on {found['device']}, {found['local_ranks']} a node"
    )
    rows = found["collectives"]
    for ranks in sorted({tuple(row["ranks"]) for row in rows}, key=lambda r: (len(r), r)):
        console.print(_collectives([row for row in rows if tuple(row["ranks"]) == ranks], ranks))
    if found["transfers"]:
        console.print(
            "copies, all ranks at once, each rank: "
            f"{found['transfers']['to_device_bytes_per_s'] / _GB:.1f} GB/s to the device, "
            f"{found['transfers']['to_host_bytes_per_s'] / _GB:.1f} GB/s back"
        )
    if found["cpu_adam"]:
        console.print(
            f"Adam on the CPU, all ranks at once, each rank: "
            f"{found['cpu_adam']['elements_per_s'] / 1e6:,.0f} million parameters/s on "
            f"{found['cpu_adam']['num_threads']:.0f} threads"
        )
    if found["nvme"]:
        console.print(
            f"NVMe, all ranks at once, each rank: {found['nvme']['read_bytes_per_s'] / _GB:.2f} "
            f"GB/s read, {found['nvme']['write_bytes_per_s'] / _GB:.2f} GB/s written"
        )
    console.print(f"[bold]{path}[/bold]")


def _collectives(rows: list[Mapping[str, Any]], ranks: tuple[int, ...]) -> Table:
    table = Table(title=f"{len(ranks)} ranks ({', '.join(map(str, ranks))}): ms (GB/s)")
    sizes = sorted({row["num_bytes"] for row in rows})
    table.add_column("collective")
    for size in sizes:
        table.add_column(f"{size / 2**20:.4g} MiB", justify="right")
    seconds = {(row["kind"], row["num_bytes"]): row["s"] for row in rows}
    for kind in dict.fromkeys(row["kind"] for row in rows):
        table.add_row(
            kind,
            *(
                f"{1e3 * seconds[kind, size]:.3f} ({size / seconds[kind, size] / _GB:.3g})"
                if (kind, size) in seconds
                else ""
                for size in sizes
            ),
        )
    return table
