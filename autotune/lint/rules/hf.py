"""What transformers and accelerate refuse before DeepSpeed sees the config.

Source: transformers 5.24, integrations/deepspeed.py: `HfTrainerDeepSpeedConfig`; accelerate 1.15,
utils/dataclasses.py: `DeepSpeedPlugin`.
"""

from collections.abc import Iterator
from typing import Any

from autotune import dotted
from autotune.lint.finding import RefusedBy, Severity
from autotune.lint.rule import Fault, rule
from autotune.lint.rules.auto import AUTO
from autotune.lint.rules.batch import STEPS, TRAIN
from autotune.lint.shown import shown
from autotune.lint.subject import Launcher, Subject
from autotune.lint.training_arguments import Expected, TrainingArguments

_ZERO = "zero_optimization"
_WARMUP = "scheduler.params.warmup_num_steps"


@rule("hf-refuses", Severity.ERROR, refused_by=RefusedBy.LAUNCHER)
def hf_refuses(subject: Subject) -> Iterator[Fault]:
    """Accelerate or the Trainer stops at the config, whatever its arguments are.

    Accelerate wants a `zero_optimization` section, if only with stage 0 (utils/dataclasses.py:
    DeepSpeedPlugin.__post_init__), and not the boolean that DeepSpeed once took. An explicit
    `warmup_num_steps` of 0 can never equal what transformers compares it with, the larger of 1 and
    its own warm-up steps (integrations/deepspeed.py: trainer_config_finalize), and DeepSpeed
    refuses it too.
    """
    if subject.launch.launcher is not Launcher.HF:
        return
    if _ZERO not in subject.config:
        yield Fault(
            field=_ZERO,
            message=f"{_ZERO} is missing: accelerate refuses a ds_config without it",
            suggestion=f'add it: "{_ZERO}": {{"stage": 2}}, or stage 0 for none',
        )
    elif isinstance(subject.config[_ZERO], bool):
        yield Fault(
            field=_ZERO,
            message=f"{_ZERO}={shown(subject.config[_ZERO])}: DeepSpeed still reads a boolean, but "
            "accelerate looks for keys in it and stops with an AttributeError",
            suggestion=f'write "{_ZERO}": {{"stage": {int(subject.config[_ZERO])}}}',
        )
    if _is_zero(dotted.get(subject.config, _WARMUP)) and subject.launch.hf_args is None:
        yield Fault(
            field=_WARMUP,
            message=f"{_WARMUP}=0: transformers compares it with at least 1 and refuses it",
            suggestion='write "auto", or 1 for no warm-up',
        )


@rule("hf-mismatch", Severity.ERROR, refused_by=RefusedBy.LAUNCHER)
def hf_mismatch(subject: Subject) -> Iterator[Fault]:
    """A value differs from the TrainingArguments that the Trainer is given (`--hf-args`).

    The Trainer compares every value that both files hold and refuses the run at the first
    difference (transformers, integrations/deepspeed.py: HfTrainerDeepSpeedConfig.fill_match). A
    string counts as different from the number in it: the message then reads "8 vs 8".

    Write "auto" in the ds_config, so that each value stands in one place. A file of
    TrainingArguments that names an `output_dir` is taken for complete: what it does not say has the
    default of transformers. Of one that does not, only what it says is compared.
    """
    arguments = subject.launch.hf_args
    if subject.launch.launcher is not Launcher.HF or arguments is None:
        return
    known = TrainingArguments(arguments, ranks=subject.launch.gpus)
    different: set[str] = set()
    for expected in known.expected():
        value = dotted.get(subject.config, expected.key)
        if value in (None, AUTO) or value == expected.value:
            continue
        different.add(expected.key)
        yield _mismatch(expected, value, form=subject.form)
    steps = known.number("gradient_accumulation_steps")
    if STEPS not in subject.config and TRAIN not in different and steps is not None and steps > 1:
        yield _left_out(subject, steps)


RULES = (hf_refuses, hf_mismatch)


def _is_zero(value: Any) -> bool:
    return value == 0 and not isinstance(value, bool)


def _mismatch(expected: Expected, value: Any, *, form: str) -> Fault:
    # Of an Accelerate YAML the Trainer overrides the precision with its own, and says nothing.
    overridden = form == "accelerate" and expected.key.endswith("16.enabled")
    outcome = "the Trainer takes its own" if overridden else "the Trainer refuses the pair"
    return Fault(
        field=expected.key,
        message=f"{expected.key}={shown(value)} in the ds_config, but {expected.argument}="
        f"{shown(expected.value)} in TrainingArguments: {outcome}",
        suggestion="give both the same" if overridden else 'write "auto" in the ds_config',
        severity=Severity.WARNING if overridden else None,
    )


def _left_out(subject: Subject, steps: float) -> Fault:
    whole = TRAIN in subject.config
    return Fault(
        field=STEPS,
        message=f"{STEPS} is missing in the ds_config, so accelerate takes 1, but "
        f"{STEPS}={shown(steps)} in TrainingArguments",
        suggestion='write "auto"',
        severity=None if whole else Severity.WARNING,
    )
