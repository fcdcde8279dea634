"""Formats the memory prediction of a config."""

from autotune.gate.result import GateResult
from autotune.job.ceiling import format_gib


def format_prediction(result: GateResult) -> str | None:
    """Return needed and available memory of device and host; None without a prediction.

    Assumptions are not included: see `format_assumptions`.
    """
    if result.memory is None:
        return None
    device, host = result.memory["device"], result.memory["host"]
    words = f"predicted {format_gib(device['needed_bytes'])}"
    if device.get("ceiling_bytes"):
        words += f" of {format_gib(device['ceiling_bytes'])}"
    if host.get("ceiling_bytes"):
        words += f", host {format_gib(host['total_bytes'])} of {format_gib(host['ceiling_bytes'])}"
    return words


def format_assumptions(result: GateResult) -> str:
    """Return the assumptions of the memory verdict, to append to it; empty without any."""
    return f", assuming {'; '.join(result.assumptions)}" if result.assumptions else ""
