"""What transformers and accelerate refuse before DeepSpeed sees the config.

Source: transformers 5.24, integrations/deepspeed.py: `HfTrainerDeepSpeedConfig`; accelerate 1.15,
utils/dataclasses.py: `DeepSpeedPlugin`.
"""

from collections.abc import Iterator
from typing import Any

from autotune import dotted
from autotune.job.launcher import Launcher
from autotune.lint.finding import RefusedBy, Severity
from autotune.lint.format_value import shown
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


@rule("hf-saves-shards", Severity.NOTE)
def hf_saves_shards(subject: Subject) -> Iterator[Fault]:
    """Stage 3 without gathering on save: a checkpoint holds shards and no model file.

    With `stage3_gather_16bit_weights_on_model_save` false, which is the default and what accelerate
    puts for "auto", `save_model` cannot collect the weights; the Trainer writes DeepSpeed's own
    checkpoint instead (transformers, trainer.py: save_model), Accelerate's `get_state_dict` raises.

    Set it to true, or turn the checkpoint into a model file afterwards: `zero_to_fp32.py` in it.
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
            message=f"{key}={shown(gathers)}: saved checkpoints hold shards and no model file",
            suggestion="set it to true, or run zero_to_fp32.py on what is saved",
        )


RULES = (hf_refuses, hf_saves_shards)


def _is_zero(value: Any) -> bool:
    return value == 0 and not isinstance(value, bool)
