"""The gate: is a ds_config fit for the big run? Rules, memory, and the record it came from."""

from autotune.gating.gate import gate
from autotune.gating.request import GateRequest
from autotune.gating.result import GateResult

__all__ = ["GateRequest", "GateResult", "gate"]
