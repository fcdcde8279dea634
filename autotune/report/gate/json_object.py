"""`--format json`: one object."""

import json
from collections.abc import Sequence

from autotune.gate.result import GateResult
from autotune.lint.check import verdict_of


def json_object(results: Sequence[GateResult]) -> str:
    """Return a result as one JSON object; several as one whose `results` they are.

    `verdict` is the worst of all.
    """
    if len(results) == 1:
        value = results[0].to_json()
    else:
        verdict = verdict_of(finding for result in results for finding in result.findings)
        value = {"verdict": verdict.value, "results": [result.to_json() for result in results]}
    # A config may hold NaN, which JSON has not: messages quote it, values of findings never do.
    return json.dumps(value, indent=2, allow_nan=False) + "\n"
