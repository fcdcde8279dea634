"""Texts that every format prints alike: path, finding with suggestion, memory answer."""

from autotune.gating.request import STDIN
from autotune.gating.result import GateResult
from autotune.job.ceiling import format_gib
from autotune.lint.finding import Finding
from autotune.planning.memory_answer import format_odds
from autotune.predict.memory.fit import Answer

_STDIN_NAME = "stdin"
_ANSWERS = {
    Answer.FITS: "memory fits",
    Answer.DOES_NOT_FIT: "memory does not fit",
    Answer.NOT_JUDGED: "memory not judged",
}


def shown_path(ds_config: str) -> str:
    """Return the path of a config as a URI's path; standard input is called stdin.

    Example:
        >>> shown_path("./configs/ds.json"), shown_path("-")
        ('configs/ds.json', 'stdin')
    """
    if ds_config == STDIN:
        return _STDIN_NAME
    # A name that is not UTF-8 reaches Python as lone surrogates.
    return ds_config.removeprefix("./").encode("utf-8", "replace").decode("utf-8")


def whole_message(finding: Finding) -> str:
    """Return message and suggestion in one text."""
    if finding.suggestion is None:
        return finding.message
    return f"{finding.message}. Suggestion: {finding.suggestion}"


def memory_line(result: GateResult) -> str:
    """Return the answer, needed and available memory of device and host, and the assumptions."""
    answer, line = result.answer, _ANSWERS[result.answer.answer]
    if answer.reason is not None:
        line += f": {answer.reason.removeprefix('memory is not judged: ')}"
    memory = answer.to_json()
    if memory is None:
        return line
    device, host = memory["device"], memory["host"]
    line += f", needs {format_gib(device['needed_bytes'])}"
    if device["limit_bytes_of_device"]:
        line += f" of {format_gib(device['limit_bytes_of_device'])}"
    if host["ceiling_bytes"]:
        line += f", host {format_gib(host['total_bytes'])} of {format_gib(host['ceiling_bytes'])}"
    if answer.is_near_edge:
        line += f", near the edge: the odds that it runs are {format_odds(answer.odds)}"
    if answer.assumed:
        line += f"; assumed: {'; '.join(answer.assumed)}"
    return line


def must_print_answer(result: GateResult) -> bool:
    """Whether formats that only list findings have to print the memory answer too."""
    return result.answer.answer is Answer.NOT_JUDGED or bool(result.answer.assumed)
