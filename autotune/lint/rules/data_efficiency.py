"""Curriculum learning, dynamic batching and random layer-token dropping."""

from collections.abc import Iterator, Mapping
from typing import Any

from autotune import dotted
from autotune.lint.config_values import fault, value_of
from autotune.lint.finding import RefusedBy, Severity
from autotune.lint.rule import Fault, rule
from autotune.lint.subject import Subject

_SAMPLING = "data_efficiency.data_sampling"
_CURRICULUM = f"{_SAMPLING}.curriculum_learning"
_DYNAMIC = f"{_SAMPLING}.dynamic_batching"
_LTD = "data_efficiency.data_routing.random_ltd"
_LTD_NEEDS = (
    "total_layer_num",
    "random_ltd_layer_num",
    "random_ltd_layer_id",
    "model_mask_name",
    "model_type",
    "hidden_state_order",
    "random_ltd_schedule.min_value",
    "random_ltd_schedule.max_value",
    "random_ltd_schedule.schedule_type",
    "random_ltd_schedule.schedule_config.require_steps",
    "random_ltd_schedule.schedule_config.seq_per_step",
)
_CURVES = {
    "fixed_linear": ("total_curriculum_step", "difficulty_step"),
    "fixed_root": ("total_curriculum_step", "difficulty_step", "root_degree"),
    "fixed_discrete": ("difficulty", "max_step"),
    "custom": (),
}


@rule("curriculum-metrics", Severity.ERROR, refused_by=RefusedBy.PARSE)
def curriculum_metrics(subject: Subject) -> Iterator[Fault]:
    """Curriculum learning is switched on without a metric.

    `runtime/data_pipeline/config.py: get_curriculum_learning` asserts `curriculum_metrics` where
    the section is enabled (by any value that is true in Python), even where data efficiency as a
    whole is off.

    Suggestion: add a metric, or set `enabled` to false.
    """
    section = subject.section(_CURRICULUM)
    if section and section.get("enabled") and "curriculum_metrics" not in section:
        yield fault(
            subject,
            f"{_CURRICULUM}.curriculum_metrics",
            "curriculum learning needs at least one metric",
            suggestion="describe one, or set enabled to false",
        )


@rule("dynamic-batching-tokens", Severity.ERROR, refused_by=RefusedBy.PARSE)
def dynamic_batching_tokens(subject: Subject) -> Iterator[Fault]:
    """Dynamic batching is switched on without a token limit.

    `runtime/data_pipeline/config.py: get_dynamic_batching` asserts `max_tokens` where the section
    is enabled.

    Suggestion: give the most tokens a batch may hold, or set `enabled` to false.
    """
    section = subject.section(_DYNAMIC)
    if section and section.get("enabled") and "max_tokens" not in section:
        yield fault(
            subject,
            f"{_DYNAMIC}.max_tokens",
            "dynamic batching needs it",
            suggestion="give the most tokens a batch may hold, or set enabled to false",
        )


@rule("curriculum-schedule", Severity.ERROR, refused_by=RefusedBy.INIT)
def curriculum_schedule(subject: Subject) -> Iterator[Fault]:
    """A curriculum's schedule is incomplete.

    `runtime/data_pipeline/curriculum_scheduler.py: CurriculumScheduler.__init__` asserts for each
    metric `min_difficulty`, `max_difficulty` and `schedule_type`, and what that type needs in
    `schedule_config`.

    Suggestion: add the missing key.
    """
    metrics = subject.section(f"{_CURRICULUM}.curriculum_metrics")
    on = (value_of(subject, f"{s}.enabled") is True for s in ("data_efficiency", _SAMPLING))
    if not metrics or not all(on) or value_of(subject, f"{_CURRICULUM}.enabled") is not True:
        return
    for name, metric in metrics.items():
        if isinstance(metric, Mapping):
            yield from _metric_faults(subject, f"{_CURRICULUM}.curriculum_metrics.{name}", metric)


def _metric_faults(subject: Subject, where: str, metric: Mapping[str, Any]) -> Iterator[Fault]:
    for key in ("min_difficulty", "max_difficulty", "schedule_type"):
        if key not in metric:
            yield fault(subject, f"{where}.{key}", "every metric needs it", suggestion=f"add {key}")
    kind = metric.get("schedule_type")
    if kind is not None and (not isinstance(kind, str) or kind not in _CURVES):
        yield fault(
            subject,
            f"{where}.schedule_type",
            f"must be one of {', '.join(_CURVES)}",
            suggestion="fixed_linear is the simplest",
        )
        return
    config = metric.get("schedule_config")
    for key in _CURVES.get(kind or "", ()):
        if not isinstance(config, Mapping) or key not in config:
            path = f"{where}.schedule_config.{key}"
            yield fault(subject, path, f"{kind} needs it", suggestion=f"add {key}")


@rule("random-ltd", Severity.ERROR, refused_by=RefusedBy.INIT)
def random_ltd(subject: Subject) -> Iterator[Fault]:
    """Random layer-token dropping lacks a setting, or has a schedule that does not exist.

    `runtime/data_pipeline/data_routing/scheduler.py` and `basic_layer.py` look the settings up by
    name, so a missing one is a bare KeyError; only the schedule fixed_linear exists. The section
    acts as soon as its `enabled` is true, whatever `data_efficiency.enabled` is.

    Suggestion: add the missing setting, or set `random_ltd.enabled` to false.
    """
    section = subject.section(_LTD)
    if not section or value_of(subject, f"{_LTD}.enabled") is not True:
        return
    for key in _LTD_NEEDS:
        if dotted.get(section, key, _LTD_NEEDS) is _LTD_NEEDS:
            yield fault(
                subject, f"{_LTD}.{key}", "random_ltd needs it", suggestion="add it, see --explain"
            )
    key = "random_ltd_schedule.schedule_type"
    if dotted.get(section, key, "fixed_linear") != "fixed_linear":
        yield fault(
            subject,
            f"{_LTD}.{key}",
            "only fixed_linear exists",
            suggestion='write "fixed_linear"',
        )
    if dotted.get(section, "layer_token_lr_schedule.enabled") is True:
        yield fault(
            subject,
            f"{_LTD}.layer_token_lr_schedule.enabled",
            "DeepSpeed has not implemented it",
            suggestion="set it to false",
        )


RULES = (curriculum_metrics, dynamic_batching_tokens, curriculum_schedule, random_ltd)
