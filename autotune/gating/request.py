"""The request of `autotune gate`."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from autotune.errors import GateError
from autotune.job.job import Job

STDIN = "-"
_AGE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(h|d|w)", re.IGNORECASE)
_HOURS = {"h": 1, "d": 24, "w": 24 * 7}


@dataclass(frozen=True, kw_only=True)
class GateRequest:
    """The config, the job and the options of one call of the gate."""

    ds_config: str
    """A file, or `-` for standard input."""
    job: Job = field(default_factory=Job)
    """Facts about the planned run; a fact that is None comes from another source."""
    job_file: Path | None = None
    """None looks for `autotune.yaml` in the current folder."""
    baseline: Path | None = None
    """A `record.json`."""
    max_age_h: float | None = None
    """Of the record, in hours; None allows any age."""
    measure: bool = False
    max_regression: float | None = None
    """Allowed loss as a share of the record's tokens/s; None is the record's noise band."""
    ray_address: str | None = None
    ask_deepspeed: bool = False
    ignore: frozenset[str] = field(default_factory=frozenset)
    """Ids of rules."""
    accepted: Path | None = None
    """A file of accepted findings."""
    note_unused: bool = True
    """Whether entries that match nothing are reported; False if the file is for several configs."""

    def __post_init__(self) -> None:
        faults = [
            f"{option}: needs a record to compare with; add --baseline FILE"
            for option, given in (
                ("--measure", self.measure),
                ("--max-age", self.max_age_h is not None),
                ("--max-regression", self.max_regression is not None),
            )
            if given and self.baseline is None
        ]
        if self.max_regression is not None and not 0 <= self.max_regression < 1:
            faults.append(f"--max-regression {self.max_regression:.0%}: must be 0% to below 100%")
        if faults:
            raise GateError(*faults)


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
