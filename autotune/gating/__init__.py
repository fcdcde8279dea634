"""The gate: checks a ds_config before the big run by rules, memory and a record."""

from autotune.gating.gate import gate
from autotune.gating.request import GateRequest
from autotune.gating.result import GateResult

__all__ = ["GateRequest", "GateResult", "gate"]
