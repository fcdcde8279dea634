"""Requests of the commands, from options as a user writes them."""

from dataclasses import fields
from typing import Any

from autotune.gating.request import GateRequest
from autotune.job.job import Job
from autotune.planning import PlanRequest
from autotune.tuning import TuneRequest

_JOB = frozenset(field.name for field in fields(Job))


def gate_request(**options: Any) -> GateRequest:
    """Return a request of the gate; options of the job go to its `job`."""
    return GateRequest(**_grouped(options))


def plan_request(**options: Any) -> PlanRequest:
    """Return a request of plan."""
    return PlanRequest(**_grouped(options))


def tune_request(**options: Any) -> TuneRequest:
    """Return a request of run."""
    return TuneRequest(**_grouped(options))


def _grouped(options: dict[str, Any]) -> dict[str, Any]:
    described = {name: value for name, value in options.items() if name in _JOB}
    rest = {name: value for name, value in options.items() if name not in _JOB}
    return {"job": Job(**described), **rest}
