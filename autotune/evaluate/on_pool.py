"""Runs trials on a pool's slots, with real or emulated ranks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.ds_config.build import MICRO_BATCH, shorten
from autotune.evaluate import CLEARLY_SLOWER, OnMark, TrialRequest
from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.evaluate.judge_reports import log_name, outcome_of
from autotune.job.workload import Workload
from autotune.pool.pool import Pool
from autotune.study.outcome import Outcome, Phase
from autotune.trial.report import RankReport
from autotune.trial.spec import Emulation, StepRule, TrialSpec

_SHORT_STEPS = StepRule(min_steps=4, max_steps=10, max_s=8.0)
_WHOLE_STEPS = StepRule(min_steps=6, max_steps=12, max_s=60.0)
# Far below what any device delivers: a time-out must never end a healthy trial.
_FLOOR_FLOPS = {"cuda": 5e12, "cpu": 1e9}
_FLOPS_PER_PARAMETER_AND_TOKEN = 8
"""Forward, backward, and the forward again under activation checkpointing."""
_S_PER_PARAMETER = 2e-8
"""Building, copying or stepping a parameter on the slowest host that is supported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The settings that all trials of a study share."""

    workload: Workload
    device_kind: str
    ceiling_bytes: int
    """The most a rank may use on its device."""
    num_threads: int
    """CPU threads of one rank."""
    seed: int
    emulation: Emulation | None = None

    def spec(self, request: TrialRequest) -> TrialSpec:
        """Return the spec that the ranks of a trial run."""
        workload = self.workload
        settings = request.model_settings
        accumulation = int(request.ds_config["gradient_accumulation_steps"])
        # Two micro steps: the accumulation buffers then exist, and an inner one can be timed.
        timed = accumulation if request.whole_steps else min(accumulation, 2)
        return TrialSpec(
            label=request.label,
            hf_config=workload.model.hf_config,
            attn_implementation=str(
                settings.get("attn_implementation", workload.attn_implementation)
            ),
            activation_checkpointing=bool(settings.get("activation_checkpointing", False)),
            seq_len=workload.seq_len,
            precision=workload.precision,
            ds_config=shorten(request.ds_config, timed_accumulation=timed),
            accumulation=accumulation,
            timed_accumulation=timed,
            device_kind=self.device_kind,
            ceiling_bytes=self.ceiling_bytes,
            num_threads=self.num_threads,
            seed=self.seed,
            # Losses of emulated ranks are not compared.
            same_weights=request.same_weights and self.emulation is None,
            steps=_step_rule(request, workload),
            hang_timeouts_s=hang_timeouts(
                workload,
                micro_batch=int(request.ds_config[MICRO_BATCH]),
                device_kind=self.device_kind,
            ),
            emulation=self.emulation,
        )

    def playing(self, rank: int) -> "Terms":
        """Return the terms of an emulated trial whose one process plays that rank."""
        return replace(self, emulation=self.emulation and replace(self.emulation, rank=rank))


def run_on_pool(
    pool: Pool, request: TrialRequest, on_mark: OnMark, *, terms: Terms, study_folder: Path
) -> Outcome:
    """Run a trial's ranks, keep each one's log in the study folder, and judge their reports.

    Raises:
        DispatchError: a slot is gone.
    """
    spec = terms.spec(request)
    # An emulated rank that keeps to its slot's share of the host does not slow the others.
    shares = spec.emulation is None or spec.num_threads > pool.threads_per_slot
    alone = request.whole_steps or (shares and _offloads(request))
    run = pool.run(spec, number=request.number, alone=alone, on_mark=on_mark)
    reports = _as_played(run.reports, spec)
    for report in reports:
        path = study_folder / log_name(spec.label, report.rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(report.log, encoding="utf-8")
    return outcome_of(
        reports,
        spec,
        evaluator=EvaluatorKind.MEASURED if spec.emulation is None else EvaluatorKind.EMULATED,
        tokens_per_step=terms.workload.tokens_per_step,
        duration_s=run.duration_s,
        neighbours=run.neighbours,
    )


def hang_timeouts(
    workload: Workload, *, micro_batch: int, device_kind: str
) -> Mapping[Phase, float]:
    """Return the seconds without a progress mark, per phase, after which a rank counts as hung.

    A rank marks every micro step, so the limit grows with the size of the model and of a micro
    batch.
    """
    parameters = workload.model.num_parameters
    states_s = parameters * _S_PER_PARAMETER
    tokens = micro_batch * workload.seq_len
    flops = _FLOPS_PER_PARAMETER_AND_TOKEN * parameters * tokens
    micro_step_s = flops / _FLOOR_FLOPS[device_kind]
    return {
        Phase.BUILD: 120 + states_s,
        # An optimizer kernel may have to be compiled: minutes on few cores.
        Phase.INIT: 600 + states_s,
        Phase.FIRST_STEP: 120 + states_s + 2 * micro_step_s,
        Phase.STEADY: 60 + states_s + micro_step_s,
    }


def _as_played(reports: Sequence[RankReport], spec: TrialSpec) -> tuple[RankReport, ...]:
    """Return the reports with the rank that an emulated trial's process played."""
    if spec.emulation is None:
        return tuple(reports)
    return tuple(replace(report, rank=spec.emulation.rank) for report in reports)


def _step_rule(request: TrialRequest, workload: Workload) -> StepRule:
    rule = _WHOLE_STEPS if request.whole_steps else _SHORT_STEPS
    if request.best_tokens_per_s is None:
        return rule
    best_step_s = workload.tokens_per_step / request.best_tokens_per_s
    return replace(rule, slow_step_s=best_step_s * CLEARLY_SLOWER)


def _offloads(request: TrialRequest) -> bool:
    """Whether a trial offloads, and so uses the cores and memory of the host."""
    zero: Mapping[str, Any] = request.ds_config.get("zero_optimization", {})
    return any(
        (zero.get(section) or {}).get("device", "none") != "none"
        for section in ("offload_optimizer", "offload_param")
    )
