"""The ds_config compared with Hugging Face's TrainingArguments (`--hf-args`).

Source: transformers 5.24, integrations/deepspeed.py: `HfTrainerDeepSpeedConfig` and
`deepspeed_optim_sched`; accelerate 1.15, utils/dataclasses.py: `DeepSpeedPlugin`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from autotune import dotted
from autotune.ds_config.fields.table import default_of
from autotune.job.launcher import Launcher
from autotune.lint.finding import RefusedBy, Severity
from autotune.lint.format_value import format_value
from autotune.lint.rule import Fault, rule
from autotune.lint.rules.auto import AUTO
from autotune.lint.rules.batch import STEPS, TRAIN
from autotune.lint.subject import Subject
from autotune.lint.training_arguments import Expected, TrainingArguments

_CLIPPING = "gradient_clipping"
_STAGE = "zero_optimization.stage"
_SHARDED_STAGE = 3
_READ_FROM_BLOCK = {
    "optimizer.params.lr": "learning_rate",
    "optimizer.params.weight_decay": "weight_decay",
    "optimizer.params.eps": "adam_epsilon",
    "scheduler.params.warmup_num_steps": "warmup_steps",
}
"""What the Trainer leaves to DeepSpeed's default where a block lacks the key."""
_SAME_SCHEDULER = {
    "constant": "WarmupLR",
    "constant_with_warmup": "WarmupLR",
    "cosine": "WarmupCosineLR",
}
_DEFAULT_SCHEDULER = "linear"
_DEFAULT_OPTIMIZER = "adamw"
"""The default of `optim` begins with it, so it is not a choice."""


@rule("hf-mismatch", Severity.ERROR, refused_by=RefusedBy.LAUNCHER)
def hf_mismatch(subject: Subject) -> Iterator[Fault]:
    """A value differs from the TrainingArguments that the Trainer is given (`--hf-args`).

    The Trainer compares every value that both files set and refuses the run at any difference
    (transformers, integrations/deepspeed.py: HfTrainerDeepSpeedConfig.fill_match). A string counts
    as different from the number in it: the Trainer's message then reads "8 vs 8".

    A file of TrainingArguments that sets `output_dir` is treated as complete: an argument that it
    does not set has the default of transformers. Otherwise only the arguments that it sets are
    compared.

    Suggestion: write "auto" in the ds_config, so that each value is set in one place.
    """
    arguments = _arguments(subject)
    if arguments is None:
        return
    known = TrainingArguments(
        arguments, ranks=subject.launch.gpus, config_steps=subject.config.get(STEPS)
    )
    different: set[str] = set()
    for expected in known.expected():
        value = dotted.get(subject.config, expected.key)
        if value in (None, AUTO) or value == expected.value:
            continue
        different.add(expected.key)
        yield _mismatch(expected, value, form=subject.form)
    steps = known.number(STEPS)
    if STEPS not in subject.config and TRAIN not in different and steps is not None and steps > 1:
        yield _left_out(subject, steps)


@rule("hf-unheard", Severity.WARNING)
def hf_ignored(subject: Subject) -> Iterator[Fault]:
    """One of the TrainingArguments has no effect, because the ds_config overrides it.

    With an `optimizer` block the Trainer does not build an optimizer, whatever `optim` is, and with
    a `scheduler` block `lr_scheduler_type` is not read (transformers, integrations/deepspeed.py:
    deepspeed_optim_sched). A key that such a block does not set has DeepSpeed's default, not the
    Trainer's value. Gradients are clipped by DeepSpeed alone, so `max_grad_norm` needs
    `gradient_clipping`.

    Suggestion: write "auto" for the missing key, or leave the block out and let the Trainer build
    it.
    """
    arguments = _arguments(subject)
    if arguments is None:
        return
    for key, argument in _READ_FROM_BLOCK.items():
        block = key.partition(".")[0]
        if subject.section(block) is not None and _is_missing(subject, key):
            given = arguments.get(argument)
            if given:
                yield _ignored(key, argument, given)
    norm = arguments.get("max_grad_norm")
    if norm is not None and _is_missing(subject, _CLIPPING) and norm != default_of(_CLIPPING):
        yield _ignored(_CLIPPING, "max_grad_norm", norm)
    yield from _other_types(subject, arguments)


@rule("hf-unsupported", Severity.ERROR, refused_by=RefusedBy.LAUNCHER)
def hf_unsupported(subject: Subject) -> Iterator[Fault]:
    """The Trainer refuses one of its arguments together with DeepSpeed.

    `auto_find_batch_size` does not work at ZeRO stage 3, and `save_only_model` does not work with
    `load_best_model_at_end` at any stage (transformers, trainer.py: Trainer.__init__ after
    `propagate_args_to_deepspeed`).

    Suggestion: switch the argument off.
    """
    arguments = _arguments(subject)
    if arguments is None:
        return
    if arguments.get("auto_find_batch_size") is True and subject.zero_stage == _SHARDED_STAGE:
        yield Fault(
            field=subject.spelled(_STAGE),
            message=f"{_STAGE}=3, and auto_find_batch_size=true in TrainingArguments: the Trainer "
            "refuses the pair",
            suggestion="give the batch size, or use stage 1 or 2",
        )
    if arguments.get("save_only_model") is True and arguments.get("load_best_model_at_end") is True:
        yield Fault(
            field="",
            message="save_only_model and load_best_model_at_end in TrainingArguments: with "
            "DeepSpeed the Trainer refuses the pair",
            suggestion="switch one of them off",
        )


RULES = (hf_mismatch, hf_ignored, hf_unsupported)


def _arguments(subject: Subject) -> Mapping[str, Any] | None:
    return subject.launch.hf_args if subject.launch.launcher is Launcher.HF else None


def _is_missing(subject: Subject, key: str) -> bool:
    return dotted.get(subject.config, key) is None


def _mismatch(expected: Expected, value: Any, *, form: str) -> Fault:
    # The Trainer silently overrides the precision of an Accelerate YAML.
    overridden = form == "accelerate" and expected.key.endswith("16.enabled")
    outcome = "the Trainer uses its value" if overridden else "the Trainer refuses the pair"
    return Fault(
        field=expected.key,
        message=f"{expected.key}={format_value(value)} in the ds_config, but {expected.argument}="
        f"{format_value(expected.value)} in TrainingArguments: {outcome}",
        suggestion="give both the same" if overridden else 'write "auto" in the ds_config',
        severity=Severity.WARNING if overridden else None,
        refused_by=RefusedBy.NOTHING if overridden else None,
    )


def _left_out(subject: Subject, steps: float) -> Fault:
    refused = TRAIN in subject.config  # it no longer equals the product
    return Fault(
        field=STEPS,
        message=f"{STEPS} is missing in the ds_config, so accelerate takes 1, but "
        f"{STEPS}={format_value(steps)} in TrainingArguments",
        suggestion='write "auto"',
        severity=None if refused else Severity.WARNING,
        refused_by=None if refused else RefusedBy.NOTHING,
    )


def _ignored(key: str, argument: str, given: Any) -> Fault:
    return Fault(
        field=key,
        message=f"{key} is missing in the ds_config, so DeepSpeed takes its default, and "
        f"{argument}={format_value(given)} in TrainingArguments has no effect",
        suggestion=f'write "auto" for {key}',
    )


def _other_types(subject: Subject, arguments: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield an optimizer or scheduler that differs from the one in TrainingArguments."""
    optimizer, wanted = dotted.get(subject.config, "optimizer.type"), arguments.get("optim")
    if isinstance(optimizer, str) and isinstance(wanted, str):
        same = optimizer.lower() in wanted.lower() or wanted.startswith(_DEFAULT_OPTIMIZER)
        if not same:
            yield _other_type("optimizer", optimizer, argument=f"optim={format_value(wanted)}")
    scheduler, wanted = (
        dotted.get(subject.config, "scheduler.type"),
        arguments.get("lr_scheduler_type"),
    )
    if isinstance(scheduler, str) and isinstance(wanted, str):
        same = wanted == _DEFAULT_SCHEDULER or _SAME_SCHEDULER.get(wanted) == scheduler
        if not same:
            yield _other_type(
                "scheduler", scheduler, argument=f"lr_scheduler_type={format_value(wanted)}"
            )


def _other_type(block: str, name: str, *, argument: str) -> Fault:
    return Fault(
        field=f"{block}.type",
        message=f"{block}.type={format_value(name)} in the ds_config is used, and {argument} in "
        "TrainingArguments has no effect",
        suggestion=f"leave the {block} block out, or name the same in both",
    )
