"""Trials on real cards for the benchmarks: measured, or emulated with communication or without."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autotune.evaluate import Evaluator
from autotune.evaluate.factory import make_evaluator
from autotune.job.device import known_device
from autotune.job.workload import Workload
from autotune.pool.pool import Pool, PoolRequest
from autotune.predict.links.communication import Links
from autotune.predict.links.probe_file import host_slowdown, read_probe

MEASURED = "measured"
EMULATED = "emulated"
UNTIMED = "untimed"
"""Emulated, with collectives that take no time."""
KINDS = (MEASURED, EMULATED, UNTIMED)
_NODE_HOST_BYTES = 2**40


@contextmanager
def opened(gpus: int, *, emulate: bool) -> Iterator[Pool]:
    """A pool whose ops are built."""
    request = PoolRequest(world_size=gpus, device_kind="cuda", model_type="llama", emulate=emulate)
    with Pool(request) as pool:
        pool.build_ops(("fused_adam", "cpu_adam"), on_note=lambda _: None)
        yield pool


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What the trials of one kind have in common; all ranks on one node."""

    pool: Pool
    ceiling_bytes: int
    links: Links | None
    """How emulated ranks reach each other."""
    host_slowdown: float
    logs: Path

    @classmethod
    def of(
        cls,
        pool: Pool,
        *,
        kind: str,
        probe: Path | None,
        logs: Path,
        ceiling_bytes: int | None = None,
    ) -> "Conditions":
        """Return the conditions of a kind; links are the probe's, else the catalogue's."""
        device = known_device(pool.device_model, memory_bytes=pool.device_bytes)
        probed = read_probe(probe) if probe is not None else None
        links = Links.from_probe(probed, device=device) if probed else Links.of_device(device)
        return cls(
            pool=pool,
            ceiling_bytes=ceiling_bytes or pool.device_bytes,
            links=links if kind == EMULATED else None,
            host_slowdown=host_slowdown(probed) if probed and kind == EMULATED else 1.0,
            logs=logs,
        )

    def evaluator(self, workload: Workload) -> Evaluator:
        """Return the evaluator of a workload."""
        return make_evaluator(
            self.pool,
            workload=workload,
            ceiling_bytes=self.ceiling_bytes,
            gpus_per_node=workload.world_size if self.pool.emulates else None,
            seed=1,
            study_folder=self.logs,
            links=self.links,
            node_host_bytes=_NODE_HOST_BYTES,
            host_slowdown=self.host_slowdown,
        )
