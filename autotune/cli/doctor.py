"""`autotune doctor`."""

import json
from typing import Annotated

import typer


def doctor(
    device: Annotated[
        str, typer.Option(help="auto or cuda: what runs on GPUs need. cpu: what CPU ranks need.")
    ] = "auto",
    fix: Annotated[
        bool, typer.Option("--fix", help="Remove locks that killed compilers have left behind.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object.")
    ] = False,
) -> None:
    """Check this machine: driver, CUDA, torch, DeepSpeed's ops, compilers, limits, disks, Ray.

    A line each, with the cure. Exit code 0 if a run can work, also with warnings; 1 if it would
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
        told = {
            "device": "cpu" if device == "cpu" else "cuda",
            "verdict": verdict.value.lower(),
            "checks": [check.to_json() for check in checks],
        }
        print(json.dumps(told, indent=2))
    if verdict is Verdict.FAIL:
        raise typer.Exit(1)
