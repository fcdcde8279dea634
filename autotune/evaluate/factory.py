"""Makes the evaluator of a pool, and describes the choice."""

from pathlib import Path
from typing import Any

from autotune.evaluate import Evaluator
from autotune.evaluate.emulated import EmulatedEvaluator
from autotune.evaluate.evaluator_kind import EvaluatorKind, caveats_of
from autotune.evaluate.measured import MeasuredEvaluator
from autotune.evaluate.options import AUTO
from autotune.job.workload import Workload
from autotune.pool.pool import Pool
from autotune.predict.links.communication import Links
from autotune.study.environment import THREADS_PER_RANK


def evaluator_of(pool: Pool) -> str:
    """Return the kind of evaluator of a pool."""
    return EvaluatorKind.EMULATED if pool.emulates else EvaluatorKind.MEASURED


def describe_choice(pool: Pool, communication: str | None) -> str:
    """Describe what `--evaluator auto` chose, why, and what its numbers omit."""
    have, ranks = pool.num_devices, pool.request.world_size
    why = f"{have} {'device' if have == 1 else 'devices'} for {ranks} ranks"
    if not pool.emulates:
        return f"--evaluator {AUTO}: measured, {why}"
    return (
        f"--evaluator {AUTO}: emulated, {why}: one device plays one rank of {ranks}. "
        f"Not in its numbers: {'; '.join(caveats_of(EvaluatorKind.EMULATED, communication))}"
    )


def describe_shares(evaluator: Evaluator) -> dict[str, Any]:
    """Return a rank's share of its host for the record; memory of emulated ranks only."""
    if not isinstance(evaluator, MeasuredEvaluator | EmulatedEvaluator):
        return {}
    terms = evaluator.terms
    shares: dict[str, Any] = {THREADS_PER_RANK: terms.num_threads}
    if terms.emulation is not None:
        shares["host_bytes_per_rank"] = terms.emulation.host_bytes
    return shares


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
    num_threads: int | None = None,
) -> MeasuredEvaluator | EmulatedEvaluator:
    """Return the evaluator of a study.

    Args:
        pool: where its trials run.
        workload: what is tuned.
        ceiling_bytes: the most a rank may use on its device.
        gpus_per_node: ranks of an emulated node; None for real ranks.
        seed: of weights and data.
        study_folder: where logs are kept.
        links: between the emulated ranks; None: collectives take no time.
        node_host_bytes: host memory of an emulated node; None is this host's.
        host_slowdown: factor on an emulated rank's CPU optimizer step, due to its neighbours.
        num_threads: CPU threads of a rank; None is a fair share.
    """
    if gpus_per_node is None:
        return MeasuredEvaluator(
            pool=pool,
            workload=workload,
            ceiling_bytes=ceiling_bytes,
            seed=seed,
            study_folder=study_folder,
            num_threads=num_threads,
        )
    return EmulatedEvaluator(
        pool=pool,
        workload=workload,
        ceiling_bytes=ceiling_bytes,
        gpus_per_node=gpus_per_node,
        links=links,
        node_host_bytes=node_host_bytes,
        host_slowdown=host_slowdown,
        num_threads=num_threads,
        seed=seed,
        study_folder=study_folder,
    )
