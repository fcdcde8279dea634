"""The public functions of `import autotune`: the commands as functions.

Each takes a `Job`, returns typed results, prints nothing, and raises `AutotuneError` with every
fault named.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.gating.request import GateRequest
from autotune.gating.result import GateResult
from autotune.job.job import Job
from autotune.planning.config import ConfigPlan
from autotune.planning.request import PlanRequest
from autotune.planning.space import SpacePlan

if TYPE_CHECKING:
    from autotune.search.progress import Progress
    from autotune.tuning.request import TuneResult

__all__ = ["Job", "gate", "plan", "plan_space", "tune"]

DsConfig = Mapping[str, Any] | Path | str
"""A ds_config: its content, or a file in any form that the gate reads."""


def plan(job: Job, ds_config: DsConfig, *, job_file: Path | None = None) -> ConfigPlan:
    """Predict memory and speed of a ds_config, without any device.

    Args:
        job: the options; a field that is None is read from the job file, the ds_config or the
            presets. `ConfigPlan.answer.assumed` names the presets that were used.
        ds_config: the config.
        job_file: a job file; None looks for `autotune.yaml` in the current folder.

    Returns:
        The plan: `answer` (fits, does not fit, not judged, with the odds), `estimate` (bytes,
        itemised), `throughput` (tokens/s of all ranks, with its interval).

    Raises:
        AutotuneError: the job or a file of it is wrong; every fault is named.

    Example:
        >>> import autotune
        >>> job = autotune.Job(model="1.3b", gpus=8, gpu_type="a100-80gb", seq_len=2048)
        >>> zero2 = {
        ...     "train_micro_batch_size_per_gpu": 1,
        ...     "bf16": {"enabled": True},
        ...     "zero_optimization": {"stage": 2},
        ... }
        >>> planned = autotune.plan(job, zero2)
        >>> planned.answer.answer.value
        'fits'
        >>> planned.estimate.device.peak_allocated_bytes < 16 * 2**30
        True
    """
    from autotune.planning import plan_config

    return plan_config(
        PlanRequest(job=job, job_file=job_file, ds_config=_path_or_mapping(ds_config))
    )


def plan_space(
    job: Job, space: str = "zero", *, base: DsConfig | None = None, job_file: Path | None = None
) -> SpacePlan:
    """Predict which proposals of a search space fit, without any device.

    Args:
        job: the options.
        space: a name in `search_spaces/`, or a YAML file.
        base: the ds_config that proposals are put into.
        job_file: a job file; None looks for `autotune.yaml` in the current folder.

    Raises:
        AutotuneError: the job or a file of it is wrong; every fault is named.

    Example:
        >>> import autotune
        >>> job = autotune.Job(model="125m", gpus=8, gpu_type="a100-40gb", seq_len=512)
        >>> autotune.plan_space(job).fits
        True
    """
    from autotune.planning import plan_space as plan_request_space

    base = None if base is None else _path_or_mapping(base)
    return plan_request_space(PlanRequest(job=job, job_file=job_file, ds_config=base, space=space))


def gate(
    ds_config: DsConfig,
    job: Job | None = None,
    *,
    job_file: Path | None = None,
    baseline: Path | None = None,
    ignore: frozenset[str] = frozenset(),
) -> GateResult:
    """Check a ds_config before the big run, without any device.

    Args:
        ds_config: the config; every fault inside it is a finding.
        job: the options; a missing fact is not judged.
        job_file: a job file; None looks for `autotune.yaml` in the current folder.
        baseline: a `record.json` that the config is compared with.
        ignore: ids of rules that are not applied.

    Returns:
        The findings, and the answer about memory. `passes(strict=...)` is the command's exit code.

    Raises:
        AutotuneError: the job, or a file beside the config, is wrong.

    Example:
        >>> import autotune
        >>> result = autotune.gate({"train_batch_size": 8, "zero_optimization": {"stge": 2}})
        >>> [finding.rule for finding in result.findings]
        ['unknown-key']
        >>> result.passes(strict=False)
        False
    """
    from autotune.gating.gate import gate as run_gate

    config = _path_or_mapping(ds_config)
    text = None if isinstance(config, Path) else json.dumps(config).encode()
    request = GateRequest(
        ds_config=str(config) if isinstance(config, Path) else "ds_config",
        job=job or Job(),
        job_file=job_file,
        baseline=baseline,
        ignore=ignore,
    )
    return run_gate(request, text=text)


def tune(job: Job, *, progress: "Progress | None" = None, **options: Any) -> "TuneResult":
    """Search for the fastest ds_config of a job under its memory ceiling.

    Args:
        job: the options.
        progress: notified of every step; None prints nothing.
        options: fields of `autotune.tuning.request.TuneRequest`, such as `base`, `space`, `trials`,
            `evaluator` and `study`.

    Returns:
        The study, its folder, and the content of `record.json`; None if nothing fits.

    Raises:
        AutotuneError: something the user can fix; nothing was overwritten.
        KeyboardInterrupt: after the running trials ended; `resume=True` continues the study.

    Example:
        >>> import autotune, tempfile, pathlib
        >>> job = autotune.Job(model="125m", gpus=8, gpu_type="a100-40gb", seq_len=512)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     result = autotune.tune(
        ...         job, evaluator="modelled", trials=2, studies_folder=pathlib.Path(folder)
        ...     )
        >>> result.record["evaluator"]
        'modelled'
    """
    from autotune.search.progress import Silent
    from autotune.tuning import TuneRequest
    from autotune.tuning import tune as run_tune

    return run_tune(TuneRequest(job=job, **options), progress or Silent())


def _path_or_mapping(ds_config: DsConfig) -> Mapping[str, Any] | Path:
    return Path(ds_config) if isinstance(ds_config, str) else ds_config
