"""`autotune run` from end to end."""

from autotune.tuning.pipeline import run_study
from autotune.tuning.request import TuneRequest, TuneResult
from autotune.tuning.tune import tune

__all__ = ["TuneRequest", "TuneResult", "run_study", "tune"]
