"""What was predicted of a config's memory, in words."""

from autotune.gate.result import GateResult
from autotune.job.ceiling import format_gib


def predicted_words(result: GateResult) -> str | None:
    """Return need and room of device and host; None where no memory was predicted.

    What nobody said is not among them: see `assuming_words`.
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


def assuming_words(result: GateResult) -> str:
    """Return what the verdict on memory rests on, to be put behind it; empty if on nothing."""
    return f", assuming {'; '.join(result.assumptions)}" if result.assumptions else ""
