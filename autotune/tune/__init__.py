"""`autotune run` from end to end."""

from autotune.tune.request import TuneRequest, TuneResult
from autotune.tune.tune import run_study, tune

__all__ = ["TuneRequest", "TuneResult", "run_study", "tune"]
