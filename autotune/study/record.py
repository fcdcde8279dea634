"""`record.json`: the numbers of an exported ds_config, and how they were made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.job.workload import Workload
from autotune.study.step_times import Interval

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The job, the runs and the results of an exported config; sizes in bytes, times in seconds.

    `autotune.export.record` builds one from a study. Fields that an older version did not write are
    None.
    """

    format: int = FORMAT
    created: datetime | None = None
    """When the last run ended, UTC."""
    evaluator: str
    not_shown: Sequence[str] = ()
    """What the numbers of this evaluator omit, a clause each."""
    emulation: Mapping[str, Any] | None = None
    """`gpus_per_node`, `communication` and `links` of emulated ranks; None of real ones."""
    modelling: Mapping[str, Any] | None = None
    """The same, and `gpu_type`, of modelled ranks."""
    trial: int | None = None
    """Number of the exported trial."""
    source: str | None = None
    """Who proposed it."""
    keeps_baseline: bool | None = None
    """Whether the baseline is exported because nothing beat it."""
    tokens_per_s: Interval
    """Over the runs, all ranks together."""
    num_runs: int = 1
    baseline: Mapping[str, Any] | None = None
    """The exported config's ratio to it, among others; None if no baseline fits."""
    challenger: Mapping[str, Any] | None = None
    """The trial that did not beat the baseline."""
    memory: Mapping[str, Any]
    """`peak_bytes`, the largest of all ranks and runs; `peak_bytes_least`, of the smallest run;
    `ceiling_bytes`, `ranks`, ... A key that an older version did not write is missing."""
    ds_config: Mapping[str, Any]
    model_settings: Mapping[str, Any]
    """Settings of the model: `activation_checkpointing`, `attn_implementation`."""
    launcher_settings: Mapping[str, Any] | None = None
    """Variables that the launcher must set as in the study: `OMP_NUM_THREADS`."""
    composition_error: float | None = None
    lint: Mapping[str, Any] | None = None
    losses: Mapping[str, Any] | None = None
    predictions: Mapping[str, Any] | None = None
    target: Mapping[str, Any] | None = None
    """The prediction for `--target-gpus`."""
    job: Mapping[str, Any] | None = None
    """The facts of the job, each with `value` and `origin`."""
    workload: Workload
    environment: Mapping[str, Any]
    """Versions, hosts and devices."""
    study: Mapping[str, Any] | None = None
    path: Path | None = None
    """The file that it was read from; not part of the content."""

    @property
    def made(self) -> str:
        """How its numbers were made, as a participle: measured, emulated or predicted."""
        return "predicted" if self.evaluator == EvaluatorKind.MODELLED else self.evaluator

    @property
    def device_model(self) -> str | None:
        """The driver's name of the devices; `cpu` for CPU ranks, None if not recorded."""
        names = self.environment.get("devices") or [""]
        # Host, device and model, as in "node7 cuda:0 NVIDIA H200".
        words = str(names[0]).split(" ", 2)
        model = self.environment.get("device_model") if len(words) < 3 else words[2]
        return None if model is None else str(model)

    def to_json(self) -> dict[str, Any]:
        """Return the file's content; `from_json` is the inverse."""
        return {
            **{f.name: getattr(self, f.name) for f in fields(self) if f.name != "path"},
            "created": None if self.created is None else self.created.isoformat(),
            "not_shown": list(self.not_shown),
            "tokens_per_s": self.tokens_per_s.to_json(),
            "workload": self.workload.to_json(),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any], *, path: Path) -> Self:
        """Rebuild a record from a file's content; keys of newer versions are ignored.

        Raises:
            TypeError, ValueError, KeyError, AttributeError: a value is missing, or of another kind.
        """
        known = {f.name for f in fields(cls)} - {"path"}
        created = content.get("created")
        return cls(
            **{
                **{name: value for name, value in content.items() if name in known},
                "path": path,
                "created": None if created is None else _time(created),
                "evaluator": str(content["evaluator"]),
                "tokens_per_s": Interval.from_json(content["tokens_per_s"]),
                "num_runs": int(content.get("num_runs", 1)),
                "memory": dict(content.get("memory") or {}),
                "ds_config": dict(content["ds_config"]),
                "model_settings": dict(content["model_settings"]),
                "workload": Workload.from_json(content["workload"]),
                "environment": dict(content["environment"]),
            }
        )


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)
