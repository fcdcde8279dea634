"""Trials on a pool's slots, real ranks or emulated ones: what they are told, and their outcome."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.ds_config.build import MICRO_BATCH, shorten
from autotune.evaluate import CLEARLY_SLOWER, OnMark, TrialRequest
from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.evaluate.hang_timeouts import hang_timeouts
from autotune.evaluate.judge_reports import log_name, outcome_of
from autotune.job.workload import Workload
from autotune.pool.pool import Pool
from autotune.study.outcome import Outcome
from autotune.trial.report import RankReport
from autotune.trial.spec import Emulation, StepRule, TrialSpec

_SHORT_STEPS = StepRule(min_steps=4, max_steps=10, max_s=8.0)
_WHOLE_STEPS = StepRule(min_steps=6, max_steps=12, max_s=60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What all trials of a study have in common."""

    workload: Workload
    device_kind: str
    ceiling_bytes: int
    """The most a rank may use on its device."""
    num_threads: int
    """CPU threads of one rank."""
    seed: int
    emulation: Emulation | None = None

    def spec(self, request: TrialRequest) -> TrialSpec:
        """Return what the ranks of a trial are told."""
        workload = self.workload
        settings = request.model_settings
        accumulation = int(request.ds_config["gradient_accumulation_steps"])
        # Two micro steps, so that the accumulation buffers exist and an inner one can be timed.
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
    # An emulated rank with no more than its slot's share of the host leaves the others theirs.
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


def _as_played(reports: Sequence[RankReport], spec: TrialSpec) -> tuple[RankReport, ...]:
    """Return reports under the rank that an emulated trial's only process played."""
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
    """Whether a trial shares the host's cores and memory with every neighbour.

    Real ranks of such a trial run without neighbours. An emulated one with no more than its share
    of the host would have neighbours on a real node.
    """
    zero: Mapping[str, Any] = request.ds_config.get("zero_optimization", {})
    return any(
        (zero.get(section) or {}).get("device", "none") != "none"
        for section in ("offload_optimizer", "offload_param")
    )
