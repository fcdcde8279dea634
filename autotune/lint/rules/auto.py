"""The value "auto" where nothing puts a number in its place.

Source: DeepSpeed 0.19.8, runtime/config_utils.py: `DeepSpeedConfigModel.__init__` drops it;
transformers 5.24, integrations/deepspeed.py: `HfTrainerDeepSpeedConfig`; accelerate 1.15,
utils/dataclasses.py: `DeepSpeedPlugin` and accelerator.py: `_prepare_deepspeed`.
"""

from collections.abc import Iterator

from autotune.ds_config.fields.kind import Kind
from autotune.ds_config.fields.table import Field, default_of, drops_auto, field_of
from autotune.ds_config.inert import inert_keys
from autotune.job.launcher import Launcher
from autotune.lint.finding import RefusedBy, Severity
from autotune.lint.format_value import format_value
from autotune.lint.rule import Fault, rule
from autotune.lint.rules.batch import MICRO, STEPS, TRAIN
from autotune.lint.subject import Subject

AUTO = "auto"
_ZERO = "zero_optimization"
_FILLED = frozenset(
    {
        TRAIN,
        MICRO,
        STEPS,
        "gradient_clipping",
        "optimizer.params.lr",
        "optimizer.params.betas",
        "optimizer.params.eps",
        "optimizer.params.weight_decay",
        "scheduler.params.warmup_min_lr",
        "scheduler.params.warmup_max_lr",
        "scheduler.params.warmup_num_steps",
        "scheduler.params.total_num_steps",
        "fp16.enabled",
        "bf16.enabled",
        f"{_ZERO}.reduce_bucket_size",
        f"{_ZERO}.stage3_prefetch_bucket_size",
        f"{_ZERO}.stage3_param_persistence_threshold",
        f"{_ZERO}.stage",
        f"{_ZERO}.offload_optimizer.device",
        f"{_ZERO}.offload_optimizer.nvme_path",
        f"{_ZERO}.offload_param.device",
        f"{_ZERO}.offload_param.nvme_path",
        f"{_ZERO}.stage3_gather_16bit_weights_on_model_save",
    }
)
"""What transformers or accelerate fill in, under these names and no others."""
_OLD_BF16 = "bfloat16.enabled"


@rule("auto-outside-hf", Severity.ERROR, refused_by=RefusedBy.INIT)
def auto_outside_hf(subject: Subject) -> Iterator[Fault]:
    """A value is "auto", which only the Hugging Face Trainer and Accelerate resolve.

    DeepSpeed does not implement "auto". Batch sizes are refused while it reads the config, with a
    bare TypeError; a learning rate stays a string and fails in the first step; in the sections that
    it parses with pydantic (`zero_optimization`, `fp16`, `bf16` and so on) the key is dropped
    silently and the default is used (`runtime/config_utils.py: DeepSpeedConfigModel`), 5e8 for a
    `reduce_bucket_size` that Hugging Face would have made hidden_size squared.

    Suggestion: give a value, or launch with the Trainer or Accelerate (`--launcher hf`).
    """
    if subject.launch.launcher is not Launcher.DEEPSPEED or _is_tuned(subject):
        return
    dropped: dict[str, list[str]] = {}
    inert = frozenset(inert_keys(subject.flat))
    for key in _autos(subject):
        field = field_of(key)
        if field is None or field.removed or key in inert or _accepts_auto(field):
            continue
        if field.type == "section" and not drops_auto(key):
            continue  # not a section: the type rule reports it
        if drops_auto(key):
            dropped.setdefault(key.partition(".")[0], []).append(key)
        else:
            yield _kept(key, field)
    for keys in dropped.values():
        yield _dropped(keys)


@rule("auto-unfilled", Severity.ERROR, refused_by=RefusedBy.LAUNCHER)
def auto_unfilled(subject: Subject) -> Iterator[Fault]:
    """A value is "auto" in a key that neither transformers nor accelerate fills.

    They fill batch sizes, clipping, the usual parameters of optimizer and warm-up, `enabled` of
    fp16 and bf16, three bucket sizes, and what Accelerate's settings name. Any other "auto", and
    one under another name of the same key, stops `accelerator.prepare` with a ValueError
    (accelerate, utils/dataclasses.py: `fill_match`).

    `bfloat16.enabled` is a warning only: DeepSpeed versions that used the old name dropped the
    value and trained in fp32.

    Suggestion: give a value, or leave the key out and take DeepSpeed's default.
    """
    if subject.launch.launcher is not Launcher.HF:
        return
    for key in _autos(subject):
        if key in _FILLED:
            continue
        field = field_of(key)
        filled = field.key if field is not None and field.key in _FILLED else None
        yield Fault(
            field=key,
            message=f'{key}="auto": neither transformers nor accelerate fills it',
            suggestion=f"write it as {filled}" if filled else "give a value, or leave it out",
            severity=Severity.WARNING if key == _OLD_BF16 else None,
        )


RULES = (auto_outside_hf, auto_unfilled)


def _autos(subject: Subject) -> Iterator[str]:
    return (key for key, value in subject.flat.items() if value == AUTO)


def _is_tuned(subject: Subject) -> bool:
    """Whether DeepSpeed's autotuner reads the config, which replaces "auto" with numbers."""
    return subject.enabled("autotuning") is True


def _accepts_auto(field: Field) -> bool:
    """Whether "auto" is a valid value of this field in DeepSpeed."""
    free_text = field.type == "str" and not field.choices
    return free_text or field.default == AUTO or AUTO in field.choices


def _kept(key: str, field: Field) -> Fault:
    parse = Kind.TEXT.value in field.refuses
    when = (
        "refuses it while it reads the config"
        if parse
        else "keeps the string and fails when it uses it"
    )
    return Fault(
        field=key,
        message=f'{key}="auto": only Hugging Face resolves it; DeepSpeed {when}',
        suggestion="give a value, or launch with the Trainer or Accelerate (--launcher hf)",
        refused_by=RefusedBy.PARSE if parse else None,
    )


def _dropped(keys: list[str]) -> Fault:
    first, *others = keys
    default = default_of(first)
    taken = "its default" if default is None else format_value(default)
    more = f"; likewise {', '.join(others)}" if others else ""
    return Fault(
        field=first,
        message=f'{first}="auto": only Hugging Face resolves it; DeepSpeed drops it silently '
        f"and takes {taken}{more}",
        suggestion="give values, or launch with the Trainer or Accelerate (--launcher hf)",
        refused_by=RefusedBy.NOTHING,
    )
