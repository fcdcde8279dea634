"""The gate: is a ds_config fit for the big run? Rules, memory, and the record it came from."""

from autotune.gate.gate import gate
from autotune.gate.request import GateRequest
from autotune.gate.result import GateResult

__all__ = ["GateRequest", "GateResult", "gate"]
