"""A study as its readers see it: its setup, every trial, and the confirmations."""

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
    """The inputs of a study; stored with it, and compared on `--resume`."""

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
    """Ranks of an emulated or modelled node; None where ranks are real."""
    communication: str | None = None
    """Source of the times of emulated or modelled collectives: catalogue, probe or none; None where
    ranks are real."""
    links: Mapping[str, Any] | None = None
    """Links between emulated ranks (`autotune.predict.links.communication.Links`)."""
    gpu_type: str | None = None
    """The device of a modelled study; None where trials run."""
    job: Mapping[str, Any] | None = None
    """Facts of the job, each with `value` and `origin`; None if recorded by an older version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyView:
    """A study read from its storage."""

    name: str
    setup: StudySetup
    records: tuple[TrialRecord, ...]
    confirmations: tuple[Confirmation, ...]
    """In order; the last one with an exported trial decides, since the winners before it failed."""
    rejections: tuple[Rejection, ...] = ()
    """Candidates that were predicted not to fit, and not launched."""
    screen: ScreenReport | None = None
    """Errors of the memory model; None until a search has ended."""
    speed: SpeedReport | None = None
    """Errors of the speed model; None where it lacks the device, or is the evaluator."""
    predicted_target: Mapping[str, Any] | None = None
    """The prediction for a trial on `--target-gpus`; None without that option."""

    @classmethod
    def of(cls, stored: StoredStudy) -> Self:
        """Read a study.

        Raises:
            StoreError: it is not a study of autotune.
        """
        attributes = stored.attributes
        if "setup" not in attributes:
            raise StoreError(
                f"study {stored.name}: not a study of autotune: its driver ended before it "
                "started, or another program made it; choose another one"
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
        """The prediction for `--target-gpus`; None if it is not of the exported trial."""
        target, exported = self.predicted_target, self.exported
        if target is None or exported is None or target["trial"] != exported.number:
            return None
        return target

    @property
    def assumed(self) -> tuple[str, ...]:
        """Facts that no source of the job states, a phrase each."""
        facts = {name: Fact.from_json(fact) for name, fact in (self.setup.job or {}).items()}
        return assumed_phrases(facts)

    @property
    def best_baseline(self) -> TrialRecord | None:
        """The fastest complete baseline of the search."""
        return best_of([r for r in self.records if r.candidate.is_baseline])

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of trials by `status_word`."""
        return Counter(map(status_word, self.records))


def status_word(record: TrialRecord) -> str:
    """Return a trial's status for a reader.

    `running` without an outcome, `interrupted` if it is asked again, else its outcome's.
    """
    if record.outcome is None:
        return "running"
    return "interrupted" if record.interrupted else record.outcome.status.value


def tokens_per_s_of_runs(runs: tuple[Outcome, ...]) -> Interval:
    """Return tokens/s over repeated runs: their mean, and its interval.

    For modelled runs the model's own interval.
    """
    if runs[0].modelled is not None:
        return runs[0].tokens_per_s
    return mean_interval([run.tokens_per_s.mean for run in runs])
