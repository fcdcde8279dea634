"""Fits the speed model's ten constants to measured step times, and prints the errors.

    python -m tests.benchmarks.throughput_fit

Least squares on the logarithms of predicted over measured, with a soft limit on what one run can
say and a weak pull towards `GUESS`. Once with all runs: what `Rates` has, rounded; and once without
each model, which is how the errors are taken. Writes tests/data/throughput_rates.json.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from statistics import median

from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.predict.throughput.constants import RATES, Rates
from tests.predict.rows import DATA
from tests.predict.throughput.timed import Timed, fitted, landscape, pairs, timed

FILE = DATA / "throughput_rates.json"
GUESS = Rates(
    matmul=0.88,
    traffic=3.4,
    launch_s=30e-6,
    checkpoint_s=1.5e-3,
    hook_s=200e-6,
    piece_s=5e-6,
    call_s=400e-6,
    contention=0.4,
    step_launches=6.0,
    cpu_passes=1.6,
)
"""Before any step was looked at: single products, casts and copies, launches, a Python loop."""
SOFT_LIMIT = 0.1
"""Errors above it count less and less: a run may have been disturbed."""
PULL = 0.1
"""Of a constant that is e times its guess, as an error."""
NUM_ITERATIONS = 12
ALL = "all"


def fit(runs: Iterable[Timed]) -> Rates:
    """Return the constants that fit some runs best."""
    from scipy.optimize import least_squares

    chosen, guess = list(runs), asdict(GUESS)

    def rates(logs: Iterable[float]) -> Rates:
        pairs = zip(guess.items(), logs, strict=True)
        return Rates(**{name: value * math.exp(log) for (name, value), log in pairs})

    def residuals(logs: Iterable[float]) -> list[float]:
        trial = rates(logs)
        errors = [math.log(run.predicted_s(trial) / run.step_s) for run in chosen]
        return [*errors, *(PULL * log for log in logs)]

    found = least_squares(
        residuals,
        [0.0] * len(guess),
        # No constant is ten times its guess, and kernels cannot lose more than all of the time.
        bounds=(
            [-math.log(10)] * len(guess),
            [math.log(1 / GUESS.contention if name == "contention" else 10) for name in guess],
        ),
        loss="soft_l1",
        f_scale=SOFT_LIMIT,
        diff_step=[1e-3] * len(guess),
        max_nfev=NUM_ITERATIONS,
    )
    return rates(found.x)


def main() -> None:
    """Fit, print and write."""
    models = sorted({run.model for run in fitted()})
    found = {ALL: fit(fitted())}
    for model in models:
        found[model] = fit(run for run in fitted() if run.model != model)
    FILE.write_text(
        json.dumps({name: asdict(rates) for name, rates in found.items()}, indent=1) + "\n",
        encoding="utf-8",
    )
    for name, rates in found.items():
        values = ", ".join(f"{key} {value:.3g}" for key, value in asdict(rates).items())
        print(f"{'without ' if name != ALL else ''}{name}: {values}")
    for run in fitted():
        left_out = run.predicted_s(found[run.model]) / run.step_s - 1
        with_module = run.predicted_s(RATES) / run.step_s - 1
        print(f"{run.name} {run.model}: {run.step_s:.3f} s, {left_out:+.1%}, {with_module:+.1%}")
    sets = {
        "one card": [run for run in timed() if not run.on_two_cards],
        "two cards": [run for run in timed() if run.on_two_cards],
        "pairs on two cards": pairs("x2"),
        "pairs on two cards of another host": pairs("x2_other_host"),
        "pairs on two cards of a third host": pairs("x2_third_host"),
        "pairs on four cards": pairs("x4"),
        "emulated pairs on two cards": pairs("x2", kind=EvaluatorKind.EMULATED),
        "older landscape": landscape(older=True),
        "landscape": landscape(),
    }
    for name, runs in sets.items():
        errors = [abs(run.predicted_s(found[run.model]) / run.step_s - 1) for run in runs]
        print(f"{name}: {len(errors)} runs, median error {median(errors):.1%}, left out")


if __name__ == "__main__":
    main()
