"""The modelled evaluator: nothing runs; memory and speed are predicted.

Its outcomes carry `Modelled` instead of a measurement, so that no table can confuse the two.
"""

import time
from dataclasses import dataclass, field

from autotune.errors import AutotuneError
from autotune.evaluate import CLEARLY_SLOWER, OnMark, TrialRequest
from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.job.ceiling import format_gib
from autotune.job.workload import Workload
from autotune.predict.memory.estimate import MemoryEstimate
from autotune.predict.memory.predict import Surroundings, predict_memory
from autotune.predict.program.items import Part
from autotune.predict.speed_calibration import SpeedCalibration
from autotune.predict.throughput import SpeedSurroundings
from autotune.predict.training_job import ModelSettings, Training, read_training
from autotune.study.outcome import Failure, Modelled, Outcome, Phase, Status
from autotune.study.step_times import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelledEvaluator:
    """Predicts the memory and the speed of a trial."""

    workload: Workload
    memory: Surroundings
    """Device, ceiling and host of a rank."""
    speed: SpeedSurroundings
    calibration: SpeedCalibration = field(default_factory=SpeedCalibration)
    """Fitted to measured trials of the same workload on the same pool; none by default."""

    @property
    def name(self) -> str:
        """`modelled`: nothing runs."""
        return EvaluatorKind.MODELLED

    @property
    def capacity(self) -> int:
        """One: a prediction is a computation in this process."""
        return 1

    def evaluate(self, request: TrialRequest, on_mark: OnMark) -> Outcome:
        """Predict the trial; tens of milliseconds, more for an architecture that is traced."""
        began = time.monotonic()
        on_mark(request.label, 0, Phase.BUILD, "reading the config")
        try:
            training = self._training(request)
            estimate = predict_memory(training, self.memory)
        except AutotuneError as error:
            failure = Failure(reason="; ".join(error.faults), rank=None, phase=Phase.INIT)
            return self._outcome(Status.INVALID, began, failure=failure)
        on_mark(request.label, 0, Phase.INIT, "memory predicted")
        if estimate.fits is False:
            return self._outcome(Status.REJECTED, began, failure=_too_large(estimate))
        modelled = self._modelled(training, estimate)
        on_mark(request.label, 0, Phase.STEADY, "speed predicted")
        best = request.best_tokens_per_s
        if best is not None and best > CLEARLY_SLOWER * modelled.tokens_per_s.mean:
            failure = Failure(
                reason="predicted to be clearly slower than the best trial", phase=Phase.STEADY
            )
            return self._outcome(Status.SLOW, began, modelled=modelled, failure=failure)
        return self._outcome(Status.COMPLETE, began, modelled=modelled)

    def cancel(self) -> None:
        """Do nothing: a prediction ends within a second."""

    def _training(self, request: TrialRequest) -> Training:
        settings = ModelSettings.of_trial(request.model_settings)
        return read_training(request.ds_config, self.workload, settings)

    def _modelled(self, training: Training, estimate: MemoryEstimate) -> Modelled:
        speed = self.calibration.predict(training, self.speed)
        device = estimate.device
        return Modelled(
            tokens_per_s=Interval(
                speed.tokens_per_s, speed.tokens_per_s_low, speed.tokens_per_s_high
            ),
            peak_bytes=device.peak_allocated_bytes + device.outside_bytes,
        )

    def _outcome(
        self,
        status: Status,
        began: float,
        *,
        modelled: Modelled | None = None,
        failure: Failure | None = None,
    ) -> Outcome:
        return Outcome(
            status=status,
            evaluator=self.name,
            modelled=modelled,
            failure=failure,
            duration_s=time.monotonic() - began,
        )


def _too_large(estimate: MemoryEstimate) -> Failure:
    """Describe what does not fit: the device, or else the host."""
    device, host = estimate.device, estimate.host
    if device.fits is not False:
        return Failure(
            reason=f"predicted to need {format_gib(host.total_bytes)} of host memory a node",
            rank=0,
            phase=Phase.INIT,
        )
    # A fragmented job runs out below the sum of its peak.
    needed = max(device.needed_bytes, (device.ceiling_bytes or 0) + 1)
    return Failure(
        reason=f"predicted not to fit: needs {format_gib(needed)}; shrink {device.advice}",
        rank=0,
        phase=Phase.INIT if device.part == Part.INIT.value else Phase.STEADY,
        needed_bytes=needed,
    )
