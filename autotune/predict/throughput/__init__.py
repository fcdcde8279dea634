"""A job's speed without hardware: kernels, launches, collectives and the optimizer step.

`predict_throughput` is the one entry. `visits` reads a micro step off the program that the memory
model replays, `gather_plan` what stage 3 gathers when, `timeline` runs both on three clocks (host,
device, wire), `step` adds the optimizer, `certainty` says how wide the answer is. `rates` holds the
ten constants; `tests/benchmarks/throughput_fit.py` fits them and prints the errors.
"""

from autotune.predict.throughput.predict import Throughput, predict_throughput
from autotune.predict.throughput.surroundings import SpeedSurroundings

__all__ = ["SpeedSurroundings", "Throughput", "predict_throughput"]
