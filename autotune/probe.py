"""`autotune probe`: measures the resources that the ranks of a pool share, and writes a file."""

import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.doctor.check import Verdict
from autotune.doctor.installation import ask_installation
from autotune.doctor.ops import check_ops, read_compilers
from autotune.errors import HardwareError
from autotune.pool.pool import Pool, PoolRequest
from autotune.pool.supervise import OnMark
from autotune.predict.links.probe_file import FORMAT
from autotune.sigterm import interrupted_by_sigterm
from autotune.study.environment import describe_environment
from autotune.trial.probe.spec import CPU_SIZES_BYTES, SIZES_BYTES, ProbeSpec

_OPS = ("cpu_adam",)
_NVME_OPS = ("async_io",)
_PRELOADED_MODEL = "llama"
"""A slot preloads some model's code; a probe needs none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRequest:
    """Inputs; every field is an option of `autotune probe`."""

    gpus: int
    output: Path
    device_kind: str = "cuda"
    ray_address: str | None = None
    nvme_path: str | None = None


def probe(
    request: ProbeRequest, *, on_mark: OnMark, on_note: Callable[[str], None]
) -> dict[str, Any]:
    """Measure the pool with one rank per device, write the file, and return its content.

    Raises:
        HardwareError: too few devices, the file cannot be written, or NVMe cannot be measured;
            raised before anything starts.
        DispatchError: a rank failed.
        KeyboardInterrupt: Ctrl-C or SIGTERM; the ranks were ended, and no file was written.
    """
    _check(request)
    pool_request = PoolRequest(
        world_size=request.gpus,
        device_kind=request.device_kind,
        model_type=_PRELOADED_MODEL,
        ray_address=request.ray_address,
        offers_emulation=False,
    )
    with interrupted_by_sigterm(), Pool(pool_request) as pool:
        spec = ProbeSpec(
            label="probe",
            device_kind=request.device_kind,
            num_threads=pool.threads_per_slot,
            groups=groups_of(pool.groups[0].nodes),
            sizes_bytes=SIZES_BYTES if request.device_kind == "cuda" else CPU_SIZES_BYTES,
            # Ranks have a working directory of their own.
            nvme_path=str(Path(request.nvme_path).absolute()) if request.nvme_path else None,
        )
        pool.build_ops(_OPS + (_NVME_OPS if request.nvme_path else ()), on_note=on_note)
        rows = pool.probe(spec, on_mark=on_mark)
        found = {
            "format": FORMAT,
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "device": pool.device_model,
            "environment": describe_environment(
                pool.device_names,
                device_kind=request.device_kind,
                device_model=pool.device_model,
                driver=pool.driver,
            ),
            **combine(rows, nodes=pool.groups[0].nodes),
        }
    request.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def _check(request: ProbeRequest) -> None:
    """Check everything that would fail only after the other measurements.

    Ranks check a folder on the nodes of a Ray cluster, before they measure.

    Raises:
        HardwareError: all faults that were found.
    """
    faults = list(_faults(request))
    # Last: it takes seconds.
    if not faults and request.nvme_path is not None and request.ray_address is None:
        faults = list(_async_io_faults(request.nvme_path, request.device_kind))
    if faults:
        raise HardwareError(*faults)


def _faults(request: ProbeRequest) -> Iterator[str]:
    if request.device_kind not in ("cuda", "cpu"):
        yield f"--device {request.device_kind}: must be cuda or cpu"
    output = request.output
    if output.is_dir():
        yield f"--output {output}: is a folder; name a file, such as {output / 'probe.json'}"
    elif not output.parent.is_dir():
        yield f"--output {output}: there is no folder {output.parent}"
    elif why := _not_writable(output.parent):
        yield f"--output {output}: no file can be written there: {why}; name another"
    if request.nvme_path is None or request.ray_address is not None:
        return
    folder = Path(request.nvme_path)
    nvme = f"--nvme-path {request.nvme_path}"
    if not folder.is_dir():
        yield f"{nvme}: not a folder; create one on the NVMe drive, or leave the option out"
    elif why := _not_writable(folder):
        yield f"{nvme}: not writable: {why}; name another folder, or leave the option out"


def _not_writable(folder: Path) -> str | None:
    """Return why no file can be written in a folder, by writing one; None if it can."""
    try:
        tempfile.NamedTemporaryFile(dir=folder, prefix=".autotune-probe-").close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _async_io_faults(nvme_path: str, device_kind: str) -> Iterator[str]:
    """Yield why DeepSpeed's io cannot be used here, by the checks of `autotune doctor`."""
    asked = ask_installation(device_kind, ops=_NVME_OPS)
    for check in check_ops(asked, read_compilers(asked.cuda_home)):
        if check.verdict is not Verdict.OK:
            found = " ".join(check.found.split())
            yield (
                f"--nvme-path {nvme_path}: DeepSpeed's {check.name}: {found}; "
                f"{check.cure}, or leave the option out"
            )


def groups_of(nodes: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Return the groups of ranks to time, smallest first.

    In rank 0's node the first 2, 4, 8, ... ranks and all of them; then one rank of each node, and
    all ranks.

    Args:
        nodes: of every rank, in rank order; ranks of a node are adjacent.

    Example:
        >>> groups_of(["a", "a", "a", "b", "b", "b"])
        ((0, 1), (0, 3), (0, 1, 2), (0, 1, 2, 3, 4, 5))
    """
    local = [rank for rank, node in enumerate(nodes) if node == nodes[0]]
    sizes = [2**n for n in range(1, len(local).bit_length()) if 2**n <= len(local)]
    groups = {tuple(local[:size]) for size in [*sizes, len(local)]}
    groups |= {tuple(nodes.index(node) for node in dict.fromkeys(nodes)), tuple(range(len(nodes)))}
    return tuple(sorted((g for g in groups if len(g) > 1), key=lambda g: (len(g), g)))


def combine(rows: Iterable[Mapping[str, Any]], *, nodes: Sequence[str]) -> dict[str, Any]:
    """Merge the ranks' reports: a collective takes as long as its slowest rank.

    Args:
        rows: the report of each rank (`autotune.trial.probe.run`).
        nodes: of every rank.

    Returns:
        JSON values: `world_size`, `local_ranks` (of the fullest node), `collectives` (rows of
        `kind`, `num_bytes`, `ranks`, `s`), and `transfers`, `cpu_adam` and `nvme` of the slowest
        rank while all ranks work (None if not measured).
    """
    reports = list(rows)
    slowest: dict[tuple[str, int, tuple[int, ...]], float] = {}
    for rank in reports:
        for row in rank["collectives"]:
            key = (row["kind"], row["num_bytes"], tuple(row["ranks"]))
            slowest[key] = max(slowest.get(key, 0.0), row["s"])
    return {
        "world_size": len(nodes),
        "local_ranks": max(list(nodes).count(node) for node in nodes),
        "collectives": [
            {"kind": kind, "num_bytes": num_bytes, "ranks": list(ranks), "s": s}
            for (kind, num_bytes, ranks), s in slowest.items()
        ],
        **{part: _slowest([rank[part] for rank in reports]) for part in _PARTS},
    }


_PARTS = ("transfers", "cpu_adam", "nvme")


def _slowest(rates: Sequence[Mapping[str, float] | None]) -> dict[str, float] | None:
    """Return each rate's smallest value over the ranks that have it."""
    known = [rate for rate in rates if rate]
    names = {name: None for rate in known for name in rate}
    return {name: min(r[name] for r in known if name in r) for name in names} or None
