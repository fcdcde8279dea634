"""`record.json`, read back: the numbers that a ds_config was chosen by."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotune import dotted
from autotune.ds_config.read import read_ds_config
from autotune.errors import ConfigError, GateError
from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.gate.inputs import read_json_mapping
from autotune.job.workload import Workload

_CONFIG = "ds_config.json"
_NEEDED = ("evaluator", "tokens_per_s.value", "workload", "environment", "model_settings")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What was measured, of what, and with what."""

    path: Path
    evaluator: str
    created: datetime | None
    """When it was measured, UTC; None in records of old."""
    ds_config: Mapping[str, Any]
    model_settings: Mapping[str, Any]
    """What the trials set in the model: `activation_checkpointing`, `attn_implementation`."""
    workload: Workload
    environment: Mapping[str, Any]
    tokens_per_s: float
    tokens_per_s_low: float | None
    """Lower end of the 95 % interval of the runs' mean; None for a single run."""
    num_runs: int
    peak_bytes: int | None
    """Of the fattest rank of all runs."""
    peak_least_bytes: int | None
    """Of the fattest rank of the leanest run; None in records of old."""
    ceiling_bytes: int | None
    job: Mapping[str, Any] | None = None
    """The facts of the run's job, each with `value` and `origin`; None in older records."""
    emulation: Mapping[str, Any] | None = None
    """`gpus_per_node` and `links` of emulated ranks; None where ranks were real."""

    @property
    def made(self) -> str:
        """How its numbers came about, as a participle; no model's word was measured."""
        return "predicted" if self.evaluator == EvaluatorKind.MODELLED else self.evaluator

    @property
    def device_model(self) -> str | None:
        """What the driver calls the devices; `cpu` for CPU ranks, None if it does not tell."""
        names = self.environment.get("devices") or [""]
        # Host, device and model, as in "node7 cuda:0 NVIDIA H200".
        words = str(names[0]).split(" ", 2)
        told = self.environment.get("device_model") if len(words) < 3 else words[2]
        return None if told is None else str(told)


def read_record(path: Path) -> Record:
    """Read a record and the ds_config that it stands for.

    Raises:
        GateError: it cannot be read, or lacks what a comparison needs; every fault is named.
    """
    content = read_json_mapping(path, option="--baseline", what="a record of autotune")
    missing = [key for key in _NEEDED if dotted.get(content, key) is None]
    if missing:
        raise GateError(
            f"--baseline {path}: {', '.join(missing)} missing; give the record.json of a study"
        )
    ds_config = content.get("ds_config") or _config_beside(path)
    memory, tokens_per_s = content.get("memory") or {}, content["tokens_per_s"]
    try:
        return Record(
            path=path,
            evaluator=str(content["evaluator"]),
            created=_time(content.get("created")),
            ds_config=dict(ds_config),
            model_settings=dict(content["model_settings"]),
            workload=Workload.from_json(content["workload"]),
            environment=dict(content["environment"]),
            tokens_per_s=float(tokens_per_s["value"]),
            tokens_per_s_low=_number(tokens_per_s.get("low"), content.get("num_runs")),
            num_runs=int(content.get("num_runs", 1)),
            peak_bytes=memory.get("peak_bytes"),
            peak_least_bytes=memory.get("peak_bytes_least"),
            ceiling_bytes=memory.get("ceiling_bytes"),
            job=content.get("job"),
            emulation=content.get("emulation"),
        )
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise GateError(
            f"--baseline {path}: not a record of autotune: {type(error).__name__}: {error}"
        ) from error


def _config_beside(path: Path) -> Mapping[str, Any]:
    """Return the ds_config in the record's folder: records of old do not hold it."""
    try:
        return read_ds_config(path.parent / _CONFIG)
    except ConfigError as error:
        raise GateError(
            f"--baseline {path}: holds no ds_config, and there is none beside it: {error}"
        ) from error


def _time(text: Any) -> datetime | None:
    if text is None:
        return None
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _number(value: Any, num_runs: Any) -> float | None:
    """Return the lower end of an interval; of one run there is none."""
    return None if value is None or num_runs == 1 else float(value)
