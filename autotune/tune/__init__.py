"""`autotune run` from end to end."""

from autotune.tune.pipeline import run_study
from autotune.tune.request import TuneRequest, TuneResult
from autotune.tune.tune import tune

__all__ = ["TuneRequest", "TuneResult", "run_study", "tune"]
