"""Optuna, by ask and tell. The only module that imports it.

Proposals are drawn from a copy of the study in memory that contains what the sampler should see.
Only a proposal that will run becomes a trial of the stored study: duplicates are not stored, and
trial numbers have no gaps.
"""

import copy
import itertools
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import TrialState, create_trial

from autotune.errors import StoreError
from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.job.ceiling import format_gib
from autotune.space import Choices, IntRange, Parameter, SearchSpace
from autotune.space.proposal import Scalar
from autotune.study.candidate import Candidate, TrialRecord
from autotune.study.constraint import constraints_of
from autotune.study.outcome import Failure, Outcome, Status
from autotune.study.step_times import Interval

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

SAMPLERS = ("tpe", "random")
"""The values of `--sampler`."""
_OLD_CONSTRAINTS = "constraints"
"""Where Optuna 4 stored them, and optuna-dashboard 0.21 still reads them."""
_NUM_STARTUP_TRIALS = 10
_MAX_TPE_ATTEMPTS = 10
_MAX_NAMES = 5
"""Studies of a storage that an error lists."""
_PREFIX: Mapping[str, str] = {
    EvaluatorKind.MODELLED: "predicted ",
    EvaluatorKind.EMULATED: "emulated ",
}
"""Prefix of a speed that was not measured on real ranks, in a trial's summary."""
_STATES = {
    Status.COMPLETE: TrialState.COMPLETE,
    Status.TIMED_OUT: TrialState.FAIL,
    Status.CRASHED: TrialState.FAIL,
}
"""All others are PRUNED: TPE learns from a pruned trial's constraint, not from a failed trial."""

_WAS_INTERRUPTED = "interrupted"
_INTERRUPTED = "interrupted: the driver ended while this trial ran; it runs again on --resume"


def _names_a_failure(
    method: Callable[Concatenate["StoredStudy", _Arguments], _Result],
) -> Callable[Concatenate["StoredStudy", _Arguments], _Result]:
    """Make a method raise `StoreError` when its storage fails: full, locked, gone."""

    @wraps(method)
    def named(
        study: "StoredStudy", /, *args: _Arguments.args, **kwargs: _Arguments.kwargs
    ) -> _Result:
        try:
            return method(study, *args, **kwargs)
        except optuna.exceptions.StorageInternalError as error:
            cause = error.__cause__ or error
            reason = str(cause).strip().partition("\n")[0]
            raise StoreError(
                f"study {study.name}: its storage failed: {reason}; stored trials are "
                "kept; fix it and continue with --resume"
            ) from error

    return named


class StoredStudy:
    """A study in an Optuna storage, the only record of its trials.

    Args:
        name: the study's.
        storage_url: any that Optuna accepts.
        create: make a new study, or open an existing one.

    Raises:
        StoreError: the storage cannot be opened, the study exists (`create`) or does not.
    """

    def __init__(self, name: str, storage_url: str, *, create: bool) -> None:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.name = name
        self.check(name, storage_url, exists=not create)
        with _translated(f"--storage {_without_password(storage_url)}"):
            storage = optuna.storages.get_storage(storage_url)
            if create:
                self._study = optuna.create_study(
                    study_name=name, storage=storage, direction="maximize"
                )
            else:
                self._study = optuna.load_study(study_name=name, storage=storage)

    def close(self) -> None:
        """Close the connections to the storage's server."""
        _close(self._study._storage)

    @staticmethod
    def check(name: str, storage_url: str, *, exists: bool) -> None:
        """Make sure that a study exists, or that it does not.

        Raises:
            StoreError: it does not, or the storage cannot be opened.
        """
        where = _without_password(storage_url)
        file = _sqlite_file(storage_url)
        if file is not None and not file.exists():
            # Opening it would create it.
            if exists:
                raise StoreError(f"--study {name}: no such study: there is no file {file}")
            if not file.absolute().parent.is_dir():
                raise StoreError(
                    f"--storage {where}: cannot be opened: there is no folder {file.parent}"
                )
            return
        with _translated(f"--storage {where}"):
            storage = optuna.storages.get_storage(storage_url)
            names = optuna.get_all_study_names(storage)
            _close(storage)
        if exists and name not in names:
            raise StoreError(f"--study {name}: no such study in {where}; {_contents(names)}")
        if not exists and name in names:
            raise StoreError(
                f"--study {name}: exists in {where}; continue with --resume, or choose another name"
            )

    @property
    @_names_a_failure
    def attributes(self) -> Mapping[str, Any]:
        """The attributes that are stored with the study."""
        return self._study.user_attrs

    @_names_a_failure
    def set_attribute(self, name: str, value: Any) -> None:
        """Store a JSON value with the study."""
        self._study.set_user_attr(name, value)

    @_names_a_failure
    def _trials(self) -> list[optuna.trial.FrozenTrial]:
        return self._study.get_trials(deepcopy=False)

    def records(self) -> tuple[TrialRecord, ...]:
        """Return every trial, in the order they were launched."""
        return tuple(_record(trial) for trial in self._trials())

    def suggestions(
        self, space: SearchSpace, *, seed: int, sampler: str = "tpe"
    ) -> Iterator[dict[str, Scalar]]:
        """Yield points of the space until the caller takes one.

        The same study and seed give the same points, after a resume too. A point that the caller
        did not take counts as a running trial for the next, so that TPE moves away from it; after
        `_MAX_TPE_ATTEMPTS` points are drawn at random, since a small space may have no new point
        where TPE looks.
        """
        trials = self._trials()
        # An interrupted trial runs again, so it must not change later points.
        num_asked = sum(not trial.user_attrs.get(_WAS_INTERRUPTED) for trial in trials)
        seed = (seed * 1_000_003 + num_asked) % 2**32
        seen = optuna.create_study(direction="maximize", sampler=_sampler(sampler, seed))
        seen.add_trials([_for_sampler(t) for t in trials if t.state != TrialState.FAIL])
        for attempt in itertools.count():
            if attempt == _MAX_TPE_ATTEMPTS:
                seen.sampler = optuna.samplers.RandomSampler(seed=seed)
            drawn = seen.ask()
            values: dict[str, Scalar] = {}
            for parameter in space.parameters:
                if parameter.acts(values):
                    values[parameter.key] = _draw(drawn, parameter)
            yield values

    @_names_a_failure
    def begin(self, candidate: Candidate, space: SearchSpace) -> int:
        """Store a trial as running and return its number.

        Its parameters are the candidate's values that are in the space.
        """
        distributions = {
            parameter.key: _distribution(parameter)
            for parameter in space.parameters
            if parameter.key in candidate.values
            and parameter.kind.holds(candidate.values[parameter.key])
        }
        self._study.add_trial(
            create_trial(
                state=TrialState.RUNNING,
                params={key: candidate.values[key] for key in distributions},
                distributions=distributions,
                user_attrs={"source": candidate.source, "candidate": candidate.to_json()},
            )
        )
        return self._trials()[-1].number

    @_names_a_failure
    def tell(
        self,
        number: int,
        outcome: Outcome,
        *,
        ceiling_bytes: int,
        predicted_bytes: float | None = None,
    ) -> None:
        """Store the outcome of a trial.

        Args:
            number: the trial's.
            outcome: its outcome.
            ceiling_bytes: the most that a rank may use.
            predicted_bytes: the predicted need; None without a prediction.
        """
        trial = self._running(number)
        excesses = constraints_of(
            outcome, ceiling_bytes=ceiling_bytes, predicted_bytes=predicted_bytes
        )
        for key, excess in excesses.items():
            trial.set_constraint(key, excess)
        self._write_old_constraints(trial._trial_id, list(excesses.values()))
        for name, value in _attributes(outcome).items():
            trial.set_user_attr(name, value)
        state = _STATES.get(outcome.status, TrialState.PRUNED)
        measurement = outcome.measurement
        if measurement is not None and state is TrialState.PRUNED:
            for step, step_s in enumerate(measurement.all_step_s):
                trial.report(measurement.tokens_per_step / step_s, step)
        value = None
        if state is TrialState.COMPLETE:
            value = outcome.tokens_per_s.mean
        self._study.tell(number, value, state=state)

    def has_outcome(self, number: int) -> bool:
        """Whether the outcome of a trial is stored."""
        return self._trials()[number].state.is_finished()

    @_names_a_failure
    def interrupt(self, number: int) -> None:
        """Store that the driver ended while this trial ran."""
        trial = self._running(number)
        outcome = Outcome(
            status=Status.CRASHED,
            evaluator=str(self.attributes.get("setup", {}).get("evaluator", "")),
            failure=Failure(reason=_INTERRUPTED),
        )
        for name, value in _attributes(outcome).items():
            trial.set_user_attr(name, value)
        trial.set_user_attr(_WAS_INTERRUPTED, value=True)
        self._study.tell(number, state=TrialState.FAIL)

    def _running(self, number: int) -> optuna.Trial:
        frozen = self._trials()[number]
        return optuna.trial.Trial(self._study, frozen._trial_id)

    def _write_old_constraints(self, trial_id: int, excesses: list[float]) -> None:
        # optuna-dashboard 0.21 reads the list attribute of Optuna 4, which Optuna 5 no longer
        # writes; Optuna 5 offers no public way to set it.
        self._study._storage.set_trial_system_attr(trial_id, _OLD_CONSTRAINTS, excesses)


def _sampler(name: str, seed: int) -> optuna.samplers.BaseSampler:
    if name == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    if name != "tpe":
        raise ValueError(f"{name} is not a sampler; known: {', '.join(SAMPLERS)}")
    with warnings.catch_warnings():
        # `multivariate` and `group` are marked experimental since Optuna 2.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.samplers.TPESampler(
            multivariate=True,
            group=True,
            constant_liar=True,
            n_startup_trials=_NUM_STARTUP_TRIALS,
            seed=seed,
        )


def _close(storage: optuna.storages.BaseStorage) -> None:
    # Optuna leaves its pool of connections to the garbage collector.
    storage.remove_session()
    engine = getattr(getattr(storage, "_backend", storage), "engine", None)
    if engine is not None:
        engine.dispose()


def _contents(names: Sequence[str]) -> str:
    """Describe which studies a storage contains."""
    if not names:
        return "it contains no study"
    more = ", ..." if len(names) > _MAX_NAMES else ""
    return (
        f"it contains {', '.join(sorted(names)[:_MAX_NAMES])}{more}: choose one of these (a study "
        "keeps its name, and its folder must have the same)"
    )


def _without_password(storage_url: str) -> str:
    """Return a storage URL without its password."""
    return re.sub(r"(://[^:/@]+):[^@]*@", r"\1:***@", storage_url)


def _sqlite_file(storage_url: str) -> Path | None:
    """Return the file of a SQLite URL; None for any other storage."""
    match = re.fullmatch(r"sqlite(?:\+\w+)?:///([^?]+)", storage_url)
    return Path(match[1]) if match and match[1] != ":memory:" else None


@contextmanager
def _translated(where: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise StoreError(
            f"{where}: its driver is not installed ({error.__cause__ or error}); install it, or "
            "name one that is, as in postgresql+psycopg:// with `pip install 'autotune[postgres]'`"
        ) from error
    except Exception as error:  # SQLAlchemy and its drivers raise many types
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise StoreError(f"{where}: cannot be opened: {reason}") from error


def _record(trial: optuna.trial.FrozenTrial) -> TrialRecord:
    outcome = trial.user_attrs.get("outcome")
    return TrialRecord(
        number=trial.number,
        candidate=Candidate.from_json(trial.user_attrs["candidate"]),
        outcome=Outcome.from_json(outcome) if outcome and trial.state.is_finished() else None,
        interrupted=bool(trial.user_attrs.get(_WAS_INTERRUPTED)),
    )


def _for_sampler(trial: optuna.trial.FrozenTrial) -> optuna.trial.FrozenTrial:
    """Return a trial without the constraints of Optuna 4: Optuna 5 would count both."""
    copied = copy.copy(trial)
    copied.system_attrs = {k: v for k, v in trial.system_attrs.items() if k != _OLD_CONSTRAINTS}
    return copied


def _attributes(outcome: Outcome) -> dict[str, Any]:
    """Return the user attributes: a few short ones for a reader, and the whole outcome.

    optuna-dashboard cuts a structured attribute at 1,024 characters, and each costs a commit.
    """
    attributes: dict[str, Any] = {
        "status": outcome.status.value,
        "evaluator": outcome.evaluator,
        "outcome": outcome.to_json(),
    }
    if outcome.has_numbers:
        prefix = _PREFIX.get(outcome.evaluator, "")
        speed, peak = _speed(outcome.tokens_per_s), format_gib(outcome.peak_bytes)
        attributes["summary"] = f"{prefix}{speed} tokens/s, peak {peak}"
    if (failure := outcome.failure) is not None:
        where = f"rank {failure.rank}, {failure.phase}: " if failure.phase else ""
        log = f" ({failure.log})" if failure.log else ""
        attributes["reason"] = f"{where}{failure.reason}{log}"
    return attributes


def _speed(interval: Interval) -> str:
    """Return the interval; the mean for a trial that was stopped after a step or two."""
    if math.isinf(interval.high):
        return f"about {interval.mean:.0f}"
    return f"{interval.low:.0f} to {interval.high:.0f}"


def _draw(trial: optuna.Trial, parameter: Parameter) -> Scalar:
    kind = parameter.kind
    if isinstance(kind, Choices):
        chosen = trial.suggest_categorical(parameter.key, kind.values)
        assert chosen is not None
        return chosen
    if isinstance(kind, IntRange):
        drawn = trial.suggest_int(parameter.key, kind.low, kind.high, step=kind.step, log=kind.log)
        return parameter.snap(drawn)
    return parameter.snap(trial.suggest_float(parameter.key, kind.low, kind.high, log=kind.log))


def _distribution(parameter: Parameter) -> BaseDistribution:
    kind = parameter.kind
    if isinstance(kind, Choices):
        return CategoricalDistribution(kind.values)
    if isinstance(kind, IntRange):
        return IntDistribution(kind.low, kind.high, log=kind.log, step=kind.step)
    return FloatDistribution(kind.low, kind.high, log=kind.log)
