"""One job, described once: `run`, `plan` and `gate` resolve it alike and give one answer."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any
from unittest.mock import patch

import yaml
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from autotune.errors import AutotuneError
from autotune.gating import gate
from autotune.gating.request import GateRequest
from autotune.job.job import Job
from autotune.job.launcher import Launcher
from autotune.planning import PlanRequest
from autotune.planning.memory_answer import judge_memory
from autotune.search.progress import Silent
from autotune.tuning import TuneRequest
from autotune.tuning.prepare import prepare

BATCH = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
PRECISIONS: tuple[dict[str, Any], ...] = (
    {},
    {"bf16": {"enabled": True}},
    {"fp16": {"enabled": True}},
    {"bf16": {"enabled": "auto"}},
    {"bf16": {"enabled": False}},
)


@st.composite
def jobs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw what a user knows of a job, as fields of `Job`."""
    known = {
        "model": draw(st.sampled_from(["tiny", "125m", "gpt2"])),
        "gpus": draw(st.sampled_from([1, 2, 8, 16])),
        "gpu_type": draw(st.sampled_from(["h100-80gb", "l4", "t4"])),
        "seq_len": draw(st.sampled_from([None, 128, 1_024])),
        "activation_checkpointing": draw(st.sampled_from([None, True, False])),
        "launcher": draw(st.sampled_from([None, Launcher.DEEPSPEED, Launcher.HF])),
        "memory_ceiling": draw(st.sampled_from([None, "90%", "10GiB"])),
        "precision": draw(st.sampled_from([None, None, "fp16"])),
    }
    return {name: value for name, value in known.items() if value is not None}


@st.composite
def ds_configs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a ds_config; batch keys and precision may be missing or auto."""
    sizes = {key: draw(st.sampled_from([None, "auto", 1, 4])) for key in BATCH}
    return {
        **{key: size for key, size in sizes.items() if size is not None},
        **draw(st.sampled_from(PRECISIONS)),
        "zero_optimization": {"stage": draw(st.integers(0, 3))},
    }


@contextmanager
def _described(
    known: dict[str, Any], config: dict[str, Any], filed: frozenset[str]
) -> Iterator[tuple[Job, Path, Path | None]]:
    """Write config and job file; yield the options, and both files."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ds_config, job_file = folder / "ds_config.json", folder / "job.yaml"
        ds_config.write_text(json.dumps(config), encoding="utf-8")
        content = {key: value for key, value in known.items() if key in filed}
        plain = {key: str(v) if isinstance(v, Launcher) else v for key, v in content.items()}
        job_file.write_text(yaml.safe_dump(plain), encoding="utf-8")
        options = {key: value for key, value in known.items() if key not in filed}
        yield Job(**options), ds_config, job_file if plain else None


def _resolved_by_run(job: Job, ds_config: Path, job_file: Path | None) -> dict[str, Any]:
    """Return the job of a study that is prepared; the real DeepSpeed is not asked."""
    request = TuneRequest(
        job=job,
        job_file=job_file,
        base=ds_config,
        evaluator="modelled",
        studies_folder=ds_config.parent / "studies",
    )
    with patch("autotune.tuning.prepare.check_base"):
        return prepare(request, Silent()).resolved.to_json()


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    known=jobs(),
    config=ds_configs(),
    filed=st.frozensets(st.sampled_from([field.name for field in fields(Job)])),
)
def test_run_plan_and_gate_resolve_equal_jobs(
    known: dict[str, Any], config: dict[str, Any], filed: frozenset[str]
) -> None:
    with _described(known, config, filed) as (job, ds_config, job_file):
        planned = PlanRequest(job=job, job_file=job_file, ds_config=ds_config).resolved
        gated = gate(GateRequest(job=job, job_file=job_file, ds_config=str(ds_config)))
        assert gated.job.to_json() == planned.to_json()
        answer = judge_memory(planned)
        assert gated.answer.to_json() == answer.to_json()
        assert gated.answer.reason == answer.reason
        event(f"answer {answer.answer}")
        try:
            tuned = _resolved_by_run(job, ds_config, job_file)
        except AutotuneError as error:
            # A study refuses what cannot be trained; plan and gate judge it all the same.
            event(f"run refuses: {type(error).__name__}")
            assume(False)
        assert tuned == planned.to_json()
