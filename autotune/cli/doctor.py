"""`autotune doctor`."""

import json
from typing import Annotated

import typer


def doctor(
    device: Annotated[
        str, typer.Option(help="auto or cuda: the needs of runs on GPUs. cpu: those of CPU ranks.")
    ] = "auto",
    fix: Annotated[
        bool, typer.Option("--fix", help="Remove locks that killed compilers left.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object.")
    ] = False,
) -> None:
    """Check this machine: driver, CUDA, torch, DeepSpeed's ops, compilers, limits, disks, Ray.

    A line per check, with the fix. Exit code 0 if a run can work, also with warnings; 1 if it would
    fail.
    """
    from autotune.doctor import DoctorRequest, Verdict, examine_machine, worst

    checks = []
    for check in examine_machine(DoctorRequest(device=device, fix=fix)):
        checks.append(check)
        if not as_json:
            print(check.line, flush=True)
    verdict = worst(checks)
    if as_json:
        report = {
            "device": "cpu" if device == "cpu" else "cuda",
            "verdict": verdict.value.lower(),
            "checks": [check.to_json() for check in checks],
        }
        print(json.dumps(report, indent=2))
    if verdict is Verdict.FAIL:
        raise typer.Exit(1)
