"""The measured evaluator: N real ranks on N devices."""

from dataclasses import dataclass
from pathlib import Path

from autotune.ds_config.build import MICRO_BATCH, shorten
from autotune.evaluate import OnMark, TrialRequest
from autotune.evaluate.silence import silence_by_phase
from autotune.evaluate.verdict import log_name, outcome_of
from autotune.outcome import Outcome
from autotune.pool.pool import Pool
from autotune.trial.spec import StepRule, TrialSpec
from autotune.workload import Workload

CLEARLY_SLOWER = 1.25
"""A trial whose fastest step takes this many times the best trial's mean step is stopped."""
_SHORT_STEPS = StepRule(min_steps=4, max_steps=10, max_s=20.0)
_WHOLE_STEPS = StepRule(min_steps=6, max_steps=12, max_s=60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredEvaluator:
    """Runs a trial on one slot group of the pool. Keeps each rank's log in the study folder."""

    pool: Pool
    workload: Workload
    ceiling_bytes: int
    """The most a rank may use on its device."""
    seed: int
    study_folder: Path

    @property
    def name(self) -> str:
        """These numbers come from as many real devices as the job has ranks."""
        return "measured"

    @property
    def capacity(self) -> int:
        """One trial per slot group."""
        return self.pool.num_groups

    def evaluate(self, request: TrialRequest, on_mark: OnMark) -> Outcome:
        """Run the trial's ranks and judge their reports.

        Raises:
            DispatchError: a slot is gone.
        """
        spec = self.spec(request)
        run = self.pool.run(
            spec, number=request.number, alone=_must_run_alone(request), on_mark=on_mark
        )
        for report in run.reports:
            path = self.study_folder / log_name(spec.label, report.rank)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(report.log, encoding="utf-8")
        return outcome_of(
            run.reports,
            spec,
            evaluator=self.name,
            tokens_per_step=self.workload.tokens_per_step,
            duration_s=run.duration_s,
            neighbours=run.neighbours,
        )

    def cancel(self) -> None:
        """End running trials within about a second."""
        self.pool.cancel()

    def spec(self, request: TrialRequest) -> TrialSpec:
        """Return what the ranks of a trial are told."""
        workload, device_kind = self.workload, self.pool.request.device_kind
        accumulation = int(request.ds_config["gradient_accumulation_steps"])
        # Two micro steps, so that the accumulation buffers exist and an inner one can be timed.
        timed = accumulation if request.whole_steps else min(accumulation, 2)
        return TrialSpec(
            label=request.label,
            hf_config=workload.model.hf_config,
            attn_implementation=str(
                request.model_settings.get("attn_implementation", workload.attn_implementation)
            ),
            activation_checkpointing=bool(
                request.model_settings.get("activation_checkpointing", False)
            ),
            seq_len=workload.seq_len,
            precision=workload.precision,
            ds_config=shorten(request.ds_config, timed_accumulation=timed),
            accumulation=accumulation,
            timed_accumulation=timed,
            device_kind=device_kind,
            ceiling_bytes=self.ceiling_bytes,
            num_threads=self.pool.threads_per_slot,
            seed=self.seed,
            same_weights=request.same_weights,
            steps=self._step_rule(request),
            silence_s=silence_by_phase(
                workload,
                micro_batch=int(request.ds_config[MICRO_BATCH]),
                device_kind=device_kind,
            ),
        )

    def _step_rule(self, request: TrialRequest) -> StepRule:
        rule = _WHOLE_STEPS if request.whole_steps else _SHORT_STEPS
        if request.best_tokens_per_s is None:
            return rule
        best_step_s = self.workload.tokens_per_step / request.best_tokens_per_s
        return StepRule(
            min_steps=rule.min_steps,
            max_steps=rule.max_steps,
            max_s=rule.max_s,
            tight=rule.tight,
            slow_step_s=best_step_s * CLEARLY_SLOWER,
        )


def _must_run_alone(request: TrialRequest) -> bool:
    """Offload shares the host's cores and memory with every neighbour; so do confirmations."""
    zero = request.ds_config.get("zero_optimization", {})
    offloads = any(
        (zero.get(section) or {}).get("device", "none") != "none"
        for section in ("offload_optimizer", "offload_param")
    )
    return offloads or request.whole_steps
