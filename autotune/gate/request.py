"""What `autotune gate` is asked."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.errors import GateError
from autotune.job.cpu_threads import RankLauncher
from autotune.lint.subject import Launcher

STDIN = "-"
_AGE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(h|d|w)", re.IGNORECASE)
_HOURS = {"h": 1, "d": 24, "w": 24 * 7}


@dataclass(frozen=True, kw_only=True)
class GateRequest:
    """What a user asks for; every field but the first may be missing, and is then not judged."""

    ds_config: str
    """A file, or `-` for standard input."""
    model: str | None = None
    """A preset, a Hugging Face config.json, or a folder with one."""
    params: float | None = None
    """Parameters of the whole model, where its shape is not known."""
    trainable_params: float | None = None
    """Fewer than all with a frozen base."""
    largest_parameter: int | None = None
    """Elements of the largest single parameter, which an NVMe buffer has to hold a rank's part of;
    None takes it from the model."""
    gpus: int | None = None
    """Of the whole job."""
    nodes: int | None = None
    gpu_type: str | None = None
    gpu_memory: str | None = None
    """As the driver reports it: `79.2GiB`; a number alone is GiB."""
    host_memory: str | None = None
    """Of one node, in the same form."""
    seq_len: int | None = None
    activation_checkpointing: bool | None = None
    """None is not known: fits only if it fits without."""
    launcher: Launcher | None = None
    """None is DeepSpeed, or Hugging Face's where the config is Accelerate's or `hf_args` is
    given."""
    started_by: RankLauncher | None = None
    """What starts the ranks; None is not known, or Accelerate's launcher with its config."""
    cpu_threads: int | None = None
    """CPU threads of a rank (`OMP_NUM_THREADS`); None is what the launcher sets."""
    hf_args: Path | None = None
    """A JSON file of TrainingArguments."""
    client_optimizer: str | None = None
    pipeline_stages: int | None = None
    tensor_parallel: int | None = None
    devices: Path | None = None
    """A YAML file with more devices."""
    baseline: Path | None = None
    """A `record.json`."""
    max_age_h: float | None = None
    """Of the record, in hours; None is any age."""
    measure: bool = False
    max_regression: float | None = None
    """Share of the record's tokens/s that may be lost; None is the record's own noise band."""
    ray_address: str | None = None
    ask_deepspeed: bool = False
    ignore: frozenset[str] = field(default_factory=frozenset)
    """Ids of rules."""
    accepted: Path | None = None
    """A file of accepted findings."""
    note_unused: bool = True
    """Whether entries of it that match nothing are noted: not where it is of several configs."""

    def __post_init__(self) -> None:
        faults = [*self._out_of_range(), *self._contradictions()]
        if faults:
            raise GateError(*faults)

    def _out_of_range(self) -> list[str]:
        counts: Mapping[str, Any] = {
            "--gpus": self.gpus,
            "--nodes": self.nodes,
            "--seq-len": self.seq_len,
            "--params": self.params,
            "--trainable-params": self.trainable_params,
            "--largest-parameter": self.largest_parameter,
            "--pipeline-stages": self.pipeline_stages,
            "--tensor-parallel": self.tensor_parallel,
            "--cpu-threads": self.cpu_threads,
        }
        # `not >=` instead of `<`, which nan would pass.
        faults = [
            f"{option} {value}: must be at least 1"
            for option, value in counts.items()
            if value is not None and not 1 <= value < float("inf")
        ]
        if self.max_regression is not None and not 0 <= self.max_regression < 1:
            faults.append(f"--max-regression {self.max_regression:.0%}: must be 0% to below 100%")
        return faults

    def _contradictions(self) -> list[str]:
        faults = []
        if self.model is not None and self.params is not None:
            faults.append("--params: the model is named by --model; leave one of the two out")
        if self.gpus and self.nodes and self.gpus % self.nodes:
            faults.append(f"--nodes {self.nodes}: does not divide {self.gpus} GPUs")
        for option, given in (
            ("--measure", self.measure),
            ("--max-age", self.max_age_h is not None),
            ("--max-regression", self.max_regression is not None),
        ):
            if given and self.baseline is None:
                faults.append(f"{option}: needs a record to compare with; add --baseline FILE")
        return faults


def parse_age_h(text: str, *, where: str = "--max-age") -> float:
    """Read an age with its unit and return hours.

    Raises:
        GateError: not a number with h, d or w.

    Example:
        >>> parse_age_h("30d")
        720.0
    """
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise GateError(f"{where} {text}: not an age; write 12h, 30d or 8w")
    return float(match[1]) * _HOURS[match[2].lower()]


def parse_share(text: str, *, where: str = "--max-regression") -> float:
    """Read a share: `5%` or 0.05.

    Raises:
        GateError: neither.

    Example:
        >>> parse_share("5%"), parse_share("0.05")
        (0.05, 0.05)
    """
    number = text.strip()
    try:
        return float(number[:-1]) / 100 if number.endswith("%") else float(number)
    except ValueError as error:
        raise GateError(f"{where} {text}: not a share; write 5% or 0.05") from error
