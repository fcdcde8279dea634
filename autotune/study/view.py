"""A study as its readers see it: what was asked, every trial, and what was confirmed."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from autotune.errors import StoreError
from autotune.job.origin import Fact, assumed_phrases
from autotune.job.workload import Workload
from autotune.serialization import Serializable
from autotune.space import SearchSpace
from autotune.study.candidate import TrialRecord
from autotune.study.confirmation import Confirmation, best_of
from autotune.study.model_reports import ScreenReport, SpeedReport
from autotune.study.outcome import Outcome
from autotune.study.rejection import Rejection, read_rejections
from autotune.study.step_times import Interval, mean_interval
from autotune.study.store import StoredStudy


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySetup(Serializable):
    """What a study was asked for; stored with it, and compared on `--resume`."""

    workload: Workload
    space: SearchSpace
    base: Mapping[str, Any]
    """The user's ds_config; empty when there was none."""
    device_kind: str
    ceiling_bytes: int
    evaluator: str
    seed: int
    environment: Mapping[str, Any]
    """Versions, hosts and devices."""
    gpus_per_node: int | None = None
    """Ranks that an emulated or modelled rank would share its host with; None where ranks are
    real."""
    communication: str | None = None
    """Where the times of collectives that nobody runs come from: catalogue, probe or none; None
    where ranks are real."""
    links: Mapping[str, Any] | None = None
    """How emulated ranks reach each other (`autotune.predict.links.communication.Links`)."""
    gpu_type: str | None = None
    """What the ranks of a modelled study would run on; None where something runs."""
    job: Mapping[str, Any] | None = None
    """The facts of the job, each with `value` and `origin`; None in older studies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyView:
    """A study read from its storage."""

    name: str
    setup: StudySetup
    records: tuple[TrialRecord, ...]
    confirmations: tuple[Confirmation, ...]
    """In order; the last one that can be exported decides, the winners before it failed."""
    rejections: tuple[Rejection, ...] = ()
    """Candidates that were predicted not to fit, and not launched."""
    screen: ScreenReport | None = None
    """How the memory model did; None until a search has ended."""
    speed: SpeedReport | None = None
    """How the speed model did; None where it knows nothing, or is the evaluator."""
    predicted_target: Mapping[str, Any] | None = None
    """What was predicted of a trial on `--target-gpus`; None if nothing was asked."""

    @classmethod
    def of(cls, stored: StoredStudy) -> Self:
        """Read a study.

        Raises:
            StoreError: it is none of autotune's.
        """
        attributes = stored.attributes
        if "setup" not in attributes:
            raise StoreError(
                f"study {stored.name}: holds nothing of autotune's: its driver ended before it "
                "began, or another program made it; choose another one"
            )
        return cls(
            name=stored.name,
            setup=StudySetup.from_json(attributes["setup"]),
            records=stored.records(),
            confirmations=tuple(
                Confirmation.from_json(c) for c in attributes.get("confirmations", [])
            ),
            rejections=tuple(read_rejections(attributes)),
            screen=ScreenReport.from_json(attributes["screen"]) if "screen" in attributes else None,
            speed=SpeedReport.from_json(attributes["speed"]) if "speed" in attributes else None,
            predicted_target=attributes.get("target"),
        )

    @property
    def confirmation(self) -> Confirmation | None:
        """The one that decides, or None if nothing was confirmed."""
        decided = (c for c in reversed(self.confirmations) if c.exported is not None)
        return next(decided, None)

    @property
    def exported(self) -> TrialRecord | None:
        """The trial whose config is exported, or None."""
        confirmation = self.confirmation
        if confirmation is None or confirmation.exported is None:
            return None
        return self.records[confirmation.exported]

    @property
    def target(self) -> Mapping[str, Any] | None:
        """What is predicted of the exported trial on `--target-gpus`; None if that is another's."""
        told, exported = self.predicted_target, self.exported
        if told is None or exported is None or told["trial"] != exported.number:
            return None
        return told

    @property
    def assumed(self) -> tuple[str, ...]:
        """What no source of the job states and was taken all the same, a phrase each."""
        facts = {name: Fact.from_json(fact) for name, fact in (self.setup.job or {}).items()}
        return assumed_phrases(facts)

    @property
    def best_baseline(self) -> TrialRecord | None:
        """The fastest complete baseline of the search."""
        return best_of([r for r in self.records if r.candidate.is_baseline])

    @property
    def counts(self) -> Mapping[str, int]:
        """Trials by status; `running` without an outcome, `interrupted` if they are asked again."""
        return Counter(map(status_word, self.records))


def status_word(record: TrialRecord) -> str:
    """Return a trial's status, as a reader is told.

    `running` without an outcome, `interrupted` if it is asked again, else its outcome's.
    """
    if record.outcome is None:
        return "running"
    return "interrupted" if record.interrupted else record.outcome.status.value


def tokens_per_s_of_runs(runs: tuple[Outcome, ...]) -> Interval:
    """Return tokens/s over repeated runs: their mean, and its interval.

    Of modelled runs the model's own.
    """
    if runs[0].modelled is not None:
        return runs[0].tokens_per_s
    return mean_interval([run.tokens_per_s.mean for run in runs])
