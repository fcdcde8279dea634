"""Formats the answer about memory as one sentence, the same in every format."""

from autotune.gate.result import GateResult
from autotune.job.ceiling import format_gib
from autotune.plan.memory_answer import format_odds
from autotune.predict.memory.fit import Answer

_WORDS = {
    Answer.FITS: "memory fits",
    Answer.DOES_NOT_FIT: "memory does not fit",
    Answer.NOT_JUDGED: "memory not judged",
}


def memory_line(result: GateResult) -> str:
    """Return the answer, needed and available memory of device and host, and the assumptions."""
    answer, words = result.answer, _WORDS[result.answer.answer]
    if answer.reason is not None:
        words += f": {answer.reason.removeprefix('memory is not judged: ')}"
    memory = answer.to_json()
    if memory is None:
        return words
    device, host = memory["device"], memory["host"]
    words += f", needs {format_gib(device['needed_bytes'])}"
    if device["limit_bytes_of_device"]:
        words += f" of {format_gib(device['limit_bytes_of_device'])}"
    if host["ceiling_bytes"]:
        words += f", host {format_gib(host['total_bytes'])} of {format_gib(host['ceiling_bytes'])}"
    if answer.is_near_edge:
        words += f", near the edge: the odds that it runs are {format_odds(answer.odds)}"
    if answer.assumed:
        words += f"; assumed: {'; '.join(answer.assumed)}"
    return words


def must_print_answer(result: GateResult) -> bool:
    """Whether formats that only list findings have to print the answer too."""
    return result.answer.answer is Answer.NOT_JUDGED or bool(result.answer.assumed)
