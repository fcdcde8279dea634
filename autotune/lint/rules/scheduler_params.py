"""The keys of `scheduler.params`: names, step counts and rates."""

import difflib
import math
from collections.abc import Iterator
from typing import Any

from autotune.lint.config_values import as_number, fault, number
from autotune.lint.finding import Fix, RefusedBy, Severity
from autotune.lint.format_value import format_value
from autotune.lint.optimizers import configured_optimizer
from autotune.lint.rule import Fault, rule
from autotune.lint.schedulers import OWN, RATES, REQUIRED, STEP_COUNTS, WARMUP_TYPES
from autotune.lint.subject import Subject

_PARAMS = "scheduler.params"
_DECAY_PEAK = 0.001
"""`WarmupDecayLR`'s default of `warmup_max_lr`."""


def _own(subject: Subject) -> tuple[str, dict[str, Any]]:
    """Return the name and the parameters of one of DeepSpeed's schedules; else two empty values."""
    name, section = subject.value("scheduler.type"), subject.section(_PARAMS)
    if not isinstance(name, str) or name not in OWN:
        return "", {}
    return name, {str(key): value for key, value in section.items()} if section else {}


@rule("scheduler-params", Severity.ERROR, refused_by=RefusedBy.INIT)
def scheduler_params(subject: Subject) -> Iterator[Fault]:
    """A schedule lacks its parameters, or has an unknown one.

    `runtime/engine.py: _scheduler_from_config` passes `scheduler.params` to the constructor, which
    raises a TypeError where the section is missing (an empty one is enough), where a required
    parameter is missing, and for an unknown name.

    Suggestion: add the missing parameter, or correct the name.
    """
    name, params = _own(subject)
    if not name:
        return
    if subject.value(_PARAMS) is None and not params:
        yield fault(
            subject,
            _PARAMS,
            f"{name} needs the section, even an empty one",
            suggestion='add "params": {}' if name not in REQUIRED else "add its parameters",
        )
        return
    for param in REQUIRED.get(name, ()):
        if param not in params:
            yield fault(
                subject, f"{_PARAMS}.{param}", f"{name} needs it", suggestion=f"add {param}"
            )
    for param in params:
        if param in OWN[name] or param.startswith(("_", "#", "//")):
            continue
        near = difflib.get_close_matches(param, OWN[name], n=1)
        yield fault(
            subject,
            f"{_PARAMS}.{param}",
            f"{name} has no such parameter",
            suggestion=f"did you mean {near[0]}?"
            if near
            else f"it takes {', '.join(OWN[name][:-1])}",
        )


@rule("scheduler-steps", Severity.ERROR, refused_by=RefusedBy.INIT)
def scheduler_steps(subject: Subject) -> Iterator[Fault]:
    """A number of steps is not a positive integer.

    `runtime/lr_schedules.py`: the warm-up schedules raise unless `warmup_num_steps` is an integer
    above 0 (10.0 is not one; 1 means no warm-up), LRRangeTest does so for
    `lr_range_test_step_size`, OneCycle for a `cycle_first_step_size` of 0 or less. A
    `total_num_steps` of 0 is accepted and trains with a learning rate of 0.

    Suggestion: count the optimizer steps of the whole run.
    """
    _, params = _own(subject)
    wrong = [key for key in STEP_COUNTS if key in params and _is_no_count(key, params[key])]
    if len(wrong) > 1:
        written = " and ".join(f"{key}={format_value(params[key])}" for key in wrong)
        yield fault(
            subject,
            _PARAMS,
            f"{written} must be positive integers",
            suggestion="count the optimizer steps of the whole run; 1 warm-up step is no warm-up",
        )
    elif wrong:
        yield _count_fault(subject, wrong[0], params[wrong[0]])
    for key, least in (
        ("lr_range_test_step_size", 1),
        ("cycle_first_step_size", math.ulp(0.0)),
        ("cycle_second_step_size", 0),
    ):
        value = number(subject, f"{_PARAMS}.{key}") if key in params else None
        whole = key != "lr_range_test_step_size" or isinstance(params.get(key), int)
        if value is not None and (value < least or not whole):
            yield _count_fault(subject, key, params[key])


def _is_no_count(key: str, value: Any) -> bool:
    if value == "auto" or isinstance(value, bool):
        return False
    if isinstance(value, int):
        return value <= 0
    # DeepSpeed only calculates with the total, so a float is valid there.
    return key == "warmup_num_steps" or not isinstance(value, float) or value <= 0


def _count_fault(subject: Subject, key: str, value: Any) -> Fault:
    path = f"{_PARAMS}.{key}"
    intended = _whole(value)
    suggestion = f"write {intended}" if intended else "count the optimizer steps of the whole run"
    if key == "warmup_num_steps" and not intended:
        suggestion = "write 1 for no warm-up"
    return fault(
        subject,
        path,
        "must be positive" if key.startswith("cycle") else "must be an integer above 0",
        suggestion=suggestion,
        fix=Fix(put={path: intended}) if intended else None,
    )


def _whole(value: Any) -> int | None:
    """Return a float or a string as a positive integer; None if it is not one."""
    try:
        intended = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return (
        int(intended)
        if math.isfinite(intended) and intended > 0 and intended == int(intended)
        else None
    )


@rule("scheduler-rate", Severity.ERROR, refused_by=RefusedBy.INIT)
def scheduler_rate(subject: Subject) -> Iterator[Fault]:
    """A learning rate or ratio of a schedule is not a number, or negative.

    `runtime/engine.py: _scheduler_from_config` passes `scheduler.params` on unchanged: a string
    such as "1e-4" raises a TypeError in the schedule's constructor or in the first step. A negative
    rate increases the loss.

    Suggestion: write a number without quotes.
    """
    _, params = _own(subject)
    for key in RATES:
        value, path = params.get(key), f"{_PARAMS}.{key}"
        if isinstance(value, str) and value != "auto":
            try:
                intended = float(value)
            except ValueError:
                intended = math.nan
            fix = Fix(put={path: intended}) if math.isfinite(intended) else None
            yield fault(
                subject,
                path,
                "must be a number, not a string",
                suggestion=f"write {value.strip()} without quotes" if fix else "write a number",
                fix=fix,
            )
        elif isinstance(value, bool | dict):
            yield fault(subject, path, "must be a number", suggestion="write a number")
        elif isinstance(value, int | float) and value < 0:
            yield fault(subject, path, "must be at least 0", suggestion=f"did you mean {-value}?")


@rule("warmup-type", Severity.WARNING)
def warmup_type(subject: Subject) -> Iterator[Fault]:
    """The warm-up type is unknown.

    `runtime/lr_schedules.py: WarmupLR.__init__` logs a warning for anything but "log" and "linear"
    and uses "log".

    Suggestion: write "log" or "linear".
    """
    _, params = _own(subject)
    value = params.get("warmup_type", "log")
    if value in (*WARMUP_TYPES, "auto"):
        return
    intended = str(value).lower()
    path = f"{_PARAMS}.warmup_type"
    yield fault(
        subject,
        path,
        "DeepSpeed has log and linear, and uses log instead",
        suggestion=f'write "{intended}"' if intended in WARMUP_TYPES else 'write "log" or "linear"',
        fix=Fix(put={path: intended}) if intended in WARMUP_TYPES else None,
    )


@rule("scheduler-order", Severity.WARNING)
def scheduler_order(subject: Subject) -> Iterator[Fault]:
    """A schedule ends before its warm-up, or its lowest rate is above its highest.

    `runtime/lr_schedules.py: WarmupDecayLR._get_gamma` reaches 0 at `total_num_steps`: with a total
    that is not above the warm-up the learning rate falls to 0 when the warm-up ends.

    Suggestion: count the optimizer steps of the whole run, warm-up included.
    """
    _, params = _own(subject)
    warmup, total = (_positive(params.get(f"{key}_num_steps")) for key in ("warmup", "total"))
    if warmup is not None and total is not None and total <= warmup:
        yield fault(
            subject,
            f"{_PARAMS}.total_num_steps",
            f"not above warmup_num_steps={warmup:g}: the rate falls to 0 when the warm-up ends",
            suggestion="count the optimizer steps of the whole run, warm-up included",
        )
    for low_key, high_key in (
        ("warmup_min_lr", "warmup_max_lr"),
        ("cycle_min_lr", "cycle_max_lr"),
    ):
        low, high = (_positive(params.get(key)) for key in (low_key, high_key))
        if low is not None and high is not None and low > high:
            yield fault(
                subject,
                f"{_PARAMS}.{low_key}",
                f"above {high_key}={high:g}",
                suggestion="swap the two",
            )


def _positive(value: Any) -> float | None:
    number_ = as_number(value)
    return number_ if number_ is not None and number_ > 0 else None


@rule("scheduler-peak-rate", Severity.WARNING)
def scheduler_peak_rate(subject: Subject) -> Iterator[Fault]:
    """The schedule overrides the optimizer's learning rate.

    `runtime/lr_schedules.py` sets the rate of every step: WarmupLR and WarmupDecayLR lead to
    `warmup_max_lr`, whatever `optimizer.params.lr` is. Left out it is that rate for WarmupLR, but
    0.001 for WarmupDecayLR.

    Suggestion: write the same rate in both places.
    """
    name, params = _own(subject)
    rate = number(subject, "optimizer.params.lr")
    if name not in ("WarmupLR", "WarmupDecayLR") or configured_optimizer(subject) is None:
        return
    default = _DECAY_PEAK if name == "WarmupDecayLR" else rate
    peak = as_number(params.get("warmup_max_lr", default))
    if rate is None or peak is None or math.isclose(rate, peak):
        return
    yield fault(
        subject,
        f"{_PARAMS}.warmup_max_lr",
        f"trains at {peak:g} after the warm-up, and optimizer.params.lr={rate:g} has no effect",
        suggestion=f"write the same rate in both places, {rate:g} or {peak:g}",
    )


@rule("one-cycle-decay", Severity.WARNING)
def one_cycle_decay(subject: Subject) -> Iterator[Fault]:
    """OneCycle has a decay rate but a step size of 0.

    `runtime/lr_schedules.py: OneCycle._initialize_cycle` skips every decay while `decay_step_size`
    is 0, its default; `decay_lr_rate` then does nothing.

    Suggestion: set `decay_step_size`, or remove the decay.
    """
    name, params = _own(subject)
    if name != "OneCycle" or number(subject, f"{_PARAMS}.decay_step_size"):
        return
    for key in ("decay_lr_rate", "decay_mom_rate"):
        if key in params and number(subject, f"{_PARAMS}.{key}"):
            yield fault(
                subject,
                f"{_PARAMS}.{key}",
                "does nothing while decay_step_size is 0",
                suggestion="set decay_step_size, or remove it",
            )


RULES = (
    scheduler_params,
    scheduler_steps,
    scheduler_rate,
    warmup_type,
    scheduler_order,
    scheduler_peak_rate,
    one_cycle_decay,
)
