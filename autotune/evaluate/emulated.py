"""The emulated evaluator: one device plays one rank of N, the one that holds the most.

Memory is that of the real rank, except the communication buffers that a real rank holds outside
the allocator: these are charged against the ceiling. tokens/s of all ranks assumes that every rank
takes as long as this one. Collectives take the time that a probe or the catalogue predicts for
real links, or none. The host is divided as among the ranks of one node.
"""

from dataclasses import dataclass
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.evaluate import OnMark, TrialRequest
from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.evaluate.on_pool import Terms, run_on_pool
from autotune.job.cpu_threads import fair_share
from autotune.job.device import Device, known_device
from autotune.job.workload import Workload
from autotune.pool.pool import Pool
from autotune.predict.links.communication import Links
from autotune.predict.memory.predict import NCCL_BYTES, peak_rank
from autotune.predict.training_job import ModelSettings, read_training
from autotune.study.outcome import Outcome
from autotune.trial.spec import Emulation


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedEvaluator:
    """Runs one rank of a trial on one device of the pool. Keeps its log in the study folder."""

    pool: Pool
    """Of groups of one device."""
    workload: Workload
    ceiling_bytes: int
    """The most a real rank may use on its device."""
    gpus_per_node: int
    """Ranks that would share a node's CPUs and memory."""
    seed: int
    study_folder: Path
    links: Links | None = None
    """Links between the real ranks; None: collectives take no time."""
    host_slowdown: float = 1.0
    """Factor on an offloaded optimizer step when all ranks of a node step at the same time."""
    node_host_bytes: int | None = None
    """Host memory of a real rank's node; None is this host's."""
    num_threads: int | None = None
    """CPU threads of a rank; None is a fair share of this host's cores."""

    @property
    def name(self) -> str:
        """`emulated`: one device plays one of the job's ranks."""
        return EvaluatorKind.EMULATED

    @property
    def capacity(self) -> int:
        """One trial per device."""
        return self.pool.num_groups

    @property
    def device(self) -> Device:
        """What every rank runs on."""
        return known_device(self.pool.device_model, memory_bytes=self.pool.device_bytes)

    @property
    def terms(self) -> Terms:
        """The settings that all trials share."""
        pool = self.pool
        local_world_size = min(self.gpus_per_node, self.workload.world_size)
        share = min(fair_share(pool.host_cpus, local_world_size), pool.threads_per_slot)
        return Terms(
            workload=self.workload,
            device_kind=pool.request.device_kind,
            ceiling_bytes=self.ceiling_bytes,
            num_threads=self.num_threads or share,
            seed=self.seed,
            emulation=Emulation(
                world_size=self.workload.world_size,
                local_world_size=local_world_size,
                host_bytes=(self.node_host_bytes or pool.host_memory_bytes) // local_world_size,
                charged_bytes=charged_bytes(self.workload, pool.request.device_kind),
                links=self.links.to_json() if self.links else None,
                host_slowdown=self.host_slowdown,
            ),
        )

    def evaluate(self, request: TrialRequest, on_mark: OnMark) -> Outcome:
        """Run the rank and judge its report.

        Raises:
            DispatchError: a slot is gone.
        """
        return run_on_pool(
            self.pool,
            request,
            on_mark,
            terms=self.terms.playing(self._rank(request)),
            study_folder=self.study_folder,
        )

    def _rank(self, request: TrialRequest) -> int:
        """Return the rank to play; at stage 2 ranks differ in memory."""
        zero = request.ds_config.get("zero_optimization", {})
        if zero.get("stage", 0) != 2:
            return 0
        try:
            settings = ModelSettings.of_trial(request.model_settings)
            training = read_training(request.ds_config, self.workload, settings)
            return peak_rank(training, self.device)
        except AutotuneError:
            # DeepSpeed may run what the memory model cannot read. In 40 replayed configs the last
            # rank held at most 0.2 % less than the largest, except one with 1.6 %.
            return self.workload.world_size - 1

    def cancel(self) -> None:
        """End running trials within about a second."""
        self.pool.cancel()


def charged_bytes(workload: Workload, device_kind: str) -> int:
    """Return the bytes that NCCL holds outside the allocator; 0 where NCCL is not used."""
    return NCCL_BYTES if device_kind == "cuda" and workload.world_size > 1 else 0
