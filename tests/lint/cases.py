"""The cases of tests/cases: what was planned, and the expected result of the gate."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from autotune.gate.gate import gate
from autotune.gate.request import GateRequest
from autotune.gate.result import GateResult
from autotune.job.launcher import Launcher
from autotune.lint.finding import Finding, Severity, Verdict
from tests.asked import gate_request

FOLDER = Path(__file__).parents[1] / "cases"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One folder: a ds_config, the planned run, and the verdict that is right."""

    folder: Path
    case_file: Mapping[str, Any]
    """case.yaml."""

    @property
    def ds_config(self) -> Path:
        """The config, which need not be valid JSON."""
        return self.folder / "ds_config.json"

    @property
    def expected(self) -> Mapping[str, Any]:
        """Verdict, fields at fault and the reason."""
        return self.case_file["expected"]  # type: ignore[no-any-return]

    @property
    def verdicts(self) -> frozenset[Verdict]:
        """The verdicts that are right."""
        also = self.expected.get("also_acceptable", [])
        return frozenset(map(Verdict, [self.expected["verdict"], *also]))

    @property
    def is_memory(self) -> bool:
        """Whether the verdict depends on the memory model."""
        return bool(self.case_file["category"] == "memory")


def all_cases() -> list[Case]:
    """Return the cases in order of their numbers."""
    return [
        Case(folder=folder, case_file=yaml.safe_load((folder / "case.yaml").read_text("utf-8")))
        for folder in sorted(FOLDER.iterdir())
    ]


def judged(case: Case, scratch: Path) -> GateResult:
    """Return the result of the gate for the case.

    Args:
        case: the case.
        scratch: a folder for the file of TrainingArguments.
    """
    return gate(request_of(case, scratch))


def request_of(case: Case, scratch: Path) -> GateRequest:
    """Return the request that a user of the case would make."""
    context = case.case_file.get("context", {})
    hardware, model = case.case_file.get("hardware", {}), case.case_file.get("model", {})
    training = case.case_file.get("training", {})
    hf_args = None
    if "hf_args" in context:
        hf_args = scratch / "training_args.json"
        hf_args.write_text(json.dumps(context["hf_args"]), encoding="utf-8")
    return gate_request(
        ds_config=str(case.ds_config),
        params=model.get("params"),
        trainable_params=model.get("trainable_params"),
        largest_parameter=model.get("largest_param_partition"),
        gpus=hardware.get("gpus"),
        nodes=hardware.get("nodes"),
        gpu_type=hardware.get("gpu_type"),
        gpu_memory=_gib(hardware.get("gpu_mem_gib")),
        host_memory=_gib(hardware.get("host_ram_gib")),
        seq_len=training.get("seq_len"),
        activation_checkpointing=training.get("activation_checkpointing"),
        launcher=Launcher.HF if context.get("launcher") == "hf_trainer" else Launcher.DEEPSPEED,
        hf_args=hf_args,
        client_optimizer=context.get("client_optimizer"),
        pipeline_stages=context.get("pipeline_stages"),
        tensor_parallel=context.get("tensor_parallel"),
    )


def is_about(finding: Finding, field: str) -> bool:
    """Whether a finding is about a field, a section above it or a field below it."""
    at = f"{finding.field}."
    return at.startswith(f"{field}.") or f"{field}.".startswith(at)


def errors(findings: Iterable[Finding]) -> list[Finding]:
    """Return the errors among some findings."""
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def _gib(size: float | None) -> str | None:
    return None if size is None else f"{size}GiB"
