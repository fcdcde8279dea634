"""`--format json`: one object."""

import json
from collections.abc import Sequence

from autotune.gate.result import GateResult
from autotune.lint.check import verdict_of


def json_object(results: Sequence[GateResult]) -> str:
    """Return one result as a JSON object; several as an object with `results`.

    `verdict` is the worst of all.
    """
    if len(results) == 1:
        value = results[0].to_json()
    else:
        verdict = verdict_of(finding for result in results for finding in result.findings)
        value = {"verdict": verdict.value, "results": [result.to_json() for result in results]}
    # JSON has no NaN; messages may quote one, values of findings never contain it.
    return json.dumps(value, indent=2, allow_nan=False) + "\n"
