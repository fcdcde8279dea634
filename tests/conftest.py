"""Fixtures that several folders of tests share."""

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import alembic.util
import pytest

from autotune.ds_config.build import build_ds_config, shorten
from autotune.job.model_shape import PRESETS
from autotune.predict.program.user_cache import FOLDER_VARIABLE
from autotune.study.outcome import Phase
from autotune.trial.spec import StepRule, TrialSpec
from tests.job.workloads import resolve_workload
from tests.real_study import RealStudy, run_real_study

MakeSpec = Callable[..., TrialSpec]


@pytest.fixture(scope="session", autouse=True)
def migrations_loaded_once() -> Iterator[None]:
    """Keep Optuna's ten migrations, which alembic would load six times for each study's storage."""
    with patch("alembic.util.load_python_file", functools.cache(alembic.util.load_python_file)):
        yield


@pytest.fixture(scope="session", autouse=True)
def cache_of_this_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the user's own cache folder out of the tests, and the tests out of it."""
    folder = str(tmp_path_factory.mktemp("cache"))
    with patch.dict(os.environ, {FOLDER_VARIABLE: folder}):
        yield


@pytest.fixture(scope="session")
def real_study(tmp_path_factory: pytest.TempPathFactory) -> RealStudy:
    """The study of real ranks that tests of several folders look at."""
    return run_real_study(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session")
def make_spec() -> MakeSpec:
    """Return a function that makes a short trial of the tiny preset.

    Its first argument are dotted ds_config keys, the others replace fields of the spec; `gpus` and
    `global_batch_size` are those of the workload.
    """

    def make(
        values: dict[str, Any] | None = None,
        *,
        gpus: int = 2,
        global_batch_size: int = 8,
        **fields: Any,
    ) -> TrialSpec:
        model = PRESETS["tiny"]
        workload = resolve_workload(
            model,
            gpus=gpus,
            base={},
            global_batch_size=global_batch_size,
            precision=fields.get("precision"),
            device_kind="cpu",
        )
        small = {
            "train_micro_batch_size_per_gpu": 1,
            "zero_optimization.reduce_bucket_size": 100_000,
        }
        ds_config = build_ds_config({}, workload, small | (values or {}))
        accumulation = ds_config["gradient_accumulation_steps"]
        timed = min(accumulation, 2)
        spec: dict[str, Any] = {
            "label": "trial",
            "hf_config": model.hf_config,
            "attn_implementation": "sdpa",
            "activation_checkpointing": False,
            "seq_len": 64,
            "precision": workload.precision,
            "ds_config": shorten(ds_config, timed_accumulation=timed),
            "accumulation": accumulation,
            "timed_accumulation": timed,
            "device_kind": "cpu",
            "ceiling_bytes": 1 << 30,
            "seed": 3,
            "steps": StepRule(min_steps=3, max_steps=3),
            "hang_timeouts_s": dict.fromkeys(Phase, 60.0),
        }
        return TrialSpec(**spec | fields)

    return make
