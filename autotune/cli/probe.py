"""`autotune probe`."""

import json
from pathlib import Path
from typing import Annotated

import typer


def probe(
    gpus: Annotated[int, typer.Option(min=1, help="Devices to measure, one rank each.")],
    output: Annotated[Path, typer.Option(help="The file to write.")] = Path("probe.json"),
    device: Annotated[str, typer.Option(help="cuda, or cpu for CPU ranks.")] = "cuda",
    nvme_path: Annotated[
        str | None, typer.Option(help="A folder on the NVMe drive. [default: not measured]")
    ] = None,
    ray_address: Annotated[
        str | None,
        typer.Option(help="Address of a running Ray cluster. [default: start one on this machine]"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the measurements as one JSON object.")
    ] = False,
) -> None:
    """Measure the resources that the ranks of a pool share: links, host bus, cores, NVMe drive.

    Times collectives over sizes and groups of ranks (within a node, across nodes), copies between
    host and device, CPUAdam at a rank's share of the cores, and NVMe with DeepSpeed's own io. `run
    --probe` and `plan --probe` read the file.
    """
    from autotune.cli.live import live_progress
    from autotune.probe import ProbeRequest
    from autotune.probe import probe as measure
    from autotune.report.probe import print_probe

    request = ProbeRequest(
        gpus=gpus,
        output=output,
        device_kind=device,
        ray_address=ray_address,
        nvme_path=nvme_path,
    )
    with live_progress(max_trials=1) as progress:
        found = measure(request, on_mark=progress.marked, on_note=progress.noted)
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        print_probe(found, output)
