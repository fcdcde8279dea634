"""Which evaluator a run gets: what was asked for, and what the pool's devices allow."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.errors import HardwareError
from autotune.evaluate import Evaluator
from autotune.evaluate.emulated import EmulatedEvaluator
from autotune.evaluate.kinds import EMULATED, MEASURED, not_shown
from autotune.evaluate.measured import MeasuredEvaluator
from autotune.pool.pool import Pool
from autotune.predict.communication import Links
from autotune.workload import Workload

AUTO = "auto"
_CHOICES = (AUTO, MEASURED, EMULATED)
_USUAL_GPUS_PER_NODE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a user asks for: `--evaluator`, `--gpus` and `--gpus-per-node`."""

    evaluator: str
    gpus: int
    gpus_per_node: int | None
    """None is all, 8 at most."""

    def check(self) -> None:
        """Make sure that it can be had, as far as that can be told without a pool.

        Raises:
            HardwareError: it cannot.
        """
        if self.evaluator not in _CHOICES:
            raise HardwareError(
                f"--evaluator {self.evaluator}: must be {', '.join(_CHOICES[:-1])} or "
                f"{_CHOICES[-1]}"
            )
        given = self.gpus_per_node
        if given is not None and (given > self.gpus or self.gpus % given):
            raise HardwareError(
                f"--gpus-per-node {given}: {self.gpus} ranks do not divide into nodes of {given}; "
                "use a divisor of --gpus"
            )
        if self.evaluator == MEASURED:
            self._refuse_gpus_per_node()

    def gpus_per_node_of(self, evaluator: str) -> int | None:
        """Return the ranks that an emulated rank shares its host with; None where ranks are real.

        Raises:
            HardwareError: it was given, and the ranks are real.
        """
        if evaluator != EMULATED:
            self._refuse_gpus_per_node()
            return None
        return self.gpus_per_node or min(self.gpus, _USUAL_GPUS_PER_NODE)

    def _refuse_gpus_per_node(self) -> None:
        if self.gpus_per_node is not None:
            raise HardwareError(
                f"--gpus-per-node {self.gpus_per_node}: is for emulated ranks; real ones run where "
                "their devices are, so leave it out, or use --evaluator emulated"
            )


def evaluator_of(pool: Pool) -> str:
    """Return the kind of evaluator that a pool was opened for."""
    return EMULATED if pool.emulates else MEASURED


def describe_choice(pool: Pool, communication: str | None) -> str:
    """Say what `--evaluator auto` came to, why, and what its numbers leave out."""
    have, ranks = pool.num_devices, pool.request.world_size
    why = f"{have} {'device' if have == 1 else 'devices'} for {ranks} ranks"
    if not pool.emulates:
        return f"--evaluator auto: {MEASURED}, {why}"
    return (
        f"--evaluator auto: {EMULATED}, {why}: one device plays rank 0 of {ranks}. "
        f"Not in its numbers: {'; '.join(not_shown(EMULATED, communication))}"
    )


def describe_shares(evaluator: Evaluator) -> dict[str, Any]:
    """Return what of its host an emulated rank is given, for the record; nothing of real ranks."""
    if not isinstance(evaluator, EmulatedEvaluator):
        return {}
    terms = evaluator.terms
    assert terms.emulation is not None
    return {
        "threads_per_rank": terms.num_threads,
        "host_bytes_per_rank": terms.emulation.host_bytes,
    }


def make_evaluator(  # noqa: PLR0913  each is a different thing
    pool: Pool,
    *,
    workload: Workload,
    ceiling_bytes: int,
    gpus_per_node: int | None,
    seed: int,
    study_folder: Path,
    links: Links | None = None,
    node_host_bytes: int | None = None,
    host_slowdown: float = 1.0,
) -> MeasuredEvaluator | EmulatedEvaluator:
    """Return the evaluator of a study.

    Args:
        pool: where its trials run.
        workload: what is tuned.
        ceiling_bytes: the most a rank may use on its device.
        gpus_per_node: ranks that an emulated rank shares its host with; None for real ranks.
        seed: of weights and data.
        study_folder: where logs are kept.
        links: how the ranks that are emulated reach each other; None: collectives take no time.
        node_host_bytes: host memory of an emulated node; None is this host's.
        host_slowdown: of an emulated rank's optimizer step on the CPU, by its neighbours' steps.
    """
    if gpus_per_node is None:
        return MeasuredEvaluator(
            pool=pool,
            workload=workload,
            ceiling_bytes=ceiling_bytes,
            seed=seed,
            study_folder=study_folder,
        )
    return EmulatedEvaluator(
        pool=pool,
        workload=workload,
        ceiling_bytes=ceiling_bytes,
        gpus_per_node=gpus_per_node,
        links=links,
        node_host_bytes=node_host_bytes,
        host_slowdown=host_slowdown,
        seed=seed,
        study_folder=study_folder,
    )
