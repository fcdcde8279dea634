"""What transformers and accelerate refuse before DeepSpeed sees the config.

Source: transformers 5.24, integrations/deepspeed.py: `HfTrainerDeepSpeedConfig`; accelerate 1.15,
utils/dataclasses.py: `DeepSpeedPlugin`.
"""

from collections.abc import Iterator
from typing import Any

from autotune import dotted
from autotune.job.launcher import Launcher
from autotune.lint.finding import RefusedBy, Severity
from autotune.lint.format_value import format_value
from autotune.lint.rule import Fault, rule
from autotune.lint.rules.auto import AUTO
from autotune.lint.subject import Subject

_ZERO = "zero_optimization"
_GATHER = f"{_ZERO}.stage3_gather_16bit_weights_on_model_save"
_SHARDED_STAGE = 3
_WARMUP = "scheduler.params.warmup_num_steps"


@rule("hf-refuses", Severity.ERROR, refused_by=RefusedBy.LAUNCHER)
def hf_refuses(subject: Subject) -> Iterator[Fault]:
    """Accelerate or the Trainer stops at the config, whatever its arguments are.

    Accelerate requires a `zero_optimization` section, even for stage 0 (utils/dataclasses.py:
    DeepSpeedPlugin.__post_init__), and does not accept the deprecated boolean. An explicit
    `warmup_num_steps` of 0 never equals what transformers compares it with, the larger of 1 and its
    warm-up steps (integrations/deepspeed.py: trainer_config_finalize), and DeepSpeed refuses it
    too.

    Suggestion: write the section, and "auto" or 1 for `warmup_num_steps`.
    """
    if subject.launch.launcher is not Launcher.HF:
        return
    if _ZERO not in subject.config:
        yield Fault(
            field=_ZERO,
            message=f"{_ZERO} is missing: accelerate refuses a ds_config without it",
            suggestion=f'add it: "{_ZERO}": {{"stage": 2}}, or stage 0 to train without ZeRO',
        )
    elif isinstance(subject.config[_ZERO], bool):
        yield Fault(
            field=_ZERO,
            message=f"{_ZERO}={format_value(subject.config[_ZERO])}: DeepSpeed still reads a "
            "boolean, but accelerate looks for keys in it and stops with an AttributeError",
            suggestion=f'write "{_ZERO}": {{"stage": {int(subject.config[_ZERO])}}}',
        )
    if _is_zero(dotted.get(subject.config, _WARMUP)) and subject.launch.hf_args is None:
        yield Fault(
            field=_WARMUP,
            message=f"{_WARMUP}=0: transformers compares it with at least 1 and refuses it",
            suggestion='write "auto", or 1 for no warm-up',
        )


@rule("hf-saves-shards", Severity.NOTE)
def hf_saves_shards(subject: Subject) -> Iterator[Fault]:
    """Stage 3 without gathering on save: a checkpoint holds shards and no model file.

    With `stage3_gather_16bit_weights_on_model_save` false, which is the default and what accelerate
    writes for "auto", `save_model` cannot collect the weights; the Trainer writes a DeepSpeed
    checkpoint instead (transformers, trainer.py: save_model), Accelerate's `get_state_dict` raises.

    Suggestion: set it to true, or convert the checkpoint with the `zero_to_fp32.py` in it.
    """
    gathers = subject.value(_GATHER, default=False)
    if (
        subject.launch.launcher is Launcher.HF
        and subject.zero_stage == _SHARDED_STAGE
        and gathers in (False, AUTO)
    ):
        key = subject.spelled(_GATHER)
        yield Fault(
            field=key,
            message=f"{key}={format_value(gathers)}: saved checkpoints hold shards, not a model",
            suggestion="set it to true, or run zero_to_fp32.py on what is saved",
        )


RULES = (hf_refuses, hf_saves_shards)


def _is_zero(value: Any) -> bool:
    return value == 0 and not isinstance(value, bool)
