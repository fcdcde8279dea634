"""A job's speed without hardware: kernels, launches, collectives and the optimizer step.

`predict_throughput` is the entry point. `module_visits` reads a micro step from the program that
the memory model replays, `gather_plan` what stage 3 gathers when, `timeline` runs both on clocks of
host, device and wire, `step` adds the optimizer, `uncertainty` gives the width of the interval.
`constants` holds the ten constants; `tests/benchmarks/throughput_fit.py` fits them and prints the
errors.
"""

from autotune.predict.throughput.predict import Throughput, predict_throughput
from autotune.predict.throughput.surroundings import SpeedSurroundings

__all__ = ["SpeedSurroundings", "Throughput", "predict_throughput"]
