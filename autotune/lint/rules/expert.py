"""Automatic expert parallelism, the `expert_parallel` section: sizes, choices, combinations.

`runtime/engine.py: _configure_expert_parallel` checks the section at init and only where it is
enabled.
"""

from collections.abc import Iterator

from autotune.lint.config_values import ZERO, fault, flag, is_set, number, offload_device, value_of
from autotune.lint.finding import RefusedBy, Severity
from autotune.lint.rule import Fault, rule
from autotune.lint.subject import Subject

_SECTION = "expert_parallel"
_SIZE = f"{_SECTION}.autoep_size"
_TENSOR_SIZE = f"{_SECTION}.expert_tensor_parallel_size"
_AUTOTP = "tensor_parallel.autotp_size"
_CHOICES = {
    "score_apply": ("auto", "pre", "post"),
    "score_func": ("auto", "softmax", "sigmoid"),
    "combine_impl": ("auto", "weighted_sum", "fused_weighted_sum", "legacy_bmm"),
    "row_weighting_impl": ("auto", "eager", "fused"),
    "gate_up_impl": ("separate", "fused"),
    "comm_backend": ("comm", "deepep"),
}


def _is_on(subject: Subject) -> bool:
    return bool(flag(subject, f"{_SECTION}.enabled"))


@rule("expert-parallel-size", Severity.ERROR, refused_by=RefusedBy.INIT)
def expert_parallel_size(subject: Subject) -> Iterator[Fault]:
    """Experts cannot be divided over the ranks.

    `module_inject/auto_ep_folding.py: build_folding_spec` requires `autoep_size` to be positive and
    to divide the ranks of a pipeline stage; `validate_folding_global` does not accept expert tensor
    parallelism yet.

    Suggestion: use a divisor of the number of GPUs.
    """
    if not _is_on(subject):
        return
    size, gpus = number(subject, _SIZE), subject.launch.gpus
    ranks = gpus // (subject.launch.pipeline_stages or 1) if gpus else None
    if size is not None and size < 1:
        yield fault(subject, _SIZE, "must be at least 1", suggestion="remove it for 1")
    elif size is not None and ranks and ranks % size:
        yield fault(
            subject,
            _SIZE,
            f"must divide the {ranks} ranks of a pipeline stage",
            suggestion="use a divisor of the number of GPUs",
        )
    if number(subject, _TENSOR_SIZE) not in (None, 1):
        yield fault(subject, _TENSOR_SIZE, "only 1 is supported so far", suggestion="remove it")


@rule("expert-parallel-choice", Severity.ERROR, refused_by=RefusedBy.INIT)
def expert_parallel_choice(subject: Subject) -> Iterator[Fault]:
    """A setting of expert parallelism is not one of the choices.

    `module_inject/auto_ep_config.py: validate_autoep_config`. `load_balance_coeff` is reserved.

    Suggestion: remove it for the default.
    """
    if not _is_on(subject):
        return
    for name, choices in _CHOICES.items():
        key = f"{_SECTION}.{name}"
        if value_of(subject, key) not in choices:
            yield fault(
                subject,
                key,
                f"must be one of {', '.join(choices)}",
                suggestion=f"remove it for {choices[0]}",
            )
    key = f"{_SECTION}.load_balance_coeff"
    if is_set(subject, key):
        yield fault(subject, key, "not supported by this DeepSpeed", suggestion="remove it")


@rule("expert-parallel-combination", Severity.ERROR, refused_by=RefusedBy.INIT)
def expert_parallel_combination(subject: Subject) -> Iterator[Fault]:
    """Settings of expert parallelism that exclude each other.

    `module_inject/auto_ep_config.py: validate_autoep_config`: the fused gate needs grouped matrix
    products; fused row weighting acts in DeepEP's route only, with experts on several ranks; DeepEP
    needs the largest number of tokens on a rank, and already does the reduction of
    `fused_weighted_sum`; a token cannot be limited to more groups than there are.

    Suggestion: remove one of the settings that the message names.
    """
    if not _is_on(subject):
        return
    deepep = value_of(subject, f"{_SECTION}.comm_backend") == "deepep"
    spread = (number(subject, _SIZE) or 1) > 1
    yield from _fused_faults(subject, deepep=deepep, spread=spread)
    key = f"{_SECTION}.comm_max_tokens_per_rank"
    if deepep and number(subject, key) == 0:
        yield fault(
            subject,
            key,
            'comm_backend "deepep" needs it',
            suggestion="write micro batch x longest sequence",
        )
    groups = number(subject, f"{_SECTION}.num_expert_groups")
    key = f"{_SECTION}.num_limited_groups"
    limited = number(subject, key)
    if groups is not None and limited is not None and limited > groups:
        yield fault(
            subject, key, f"must be at most num_expert_groups={groups:g}", suggestion="lower it"
        )


def _fused_faults(subject: Subject, *, deepep: bool, spread: bool) -> Iterator[Fault]:
    key = f"{_SECTION}.gate_up_impl"
    grouped = value_of(subject, f"{_SECTION}.use_grouped_mm")
    if value_of(subject, key) == "fused" and grouped is False:
        yield fault(subject, key, "fused needs use_grouped_mm", suggestion="remove one of them")
    key = f"{_SECTION}.row_weighting_impl"
    if value_of(subject, key) == "fused" and not (deepep and spread):
        yield fault(
            subject,
            key,
            'fused acts with comm_backend "deepep" and autoep_size above 1 only',
            suggestion="remove it",
        )
    key = f"{_SECTION}.combine_impl"
    if value_of(subject, key) == "fused_weighted_sum" and deepep and spread:
        yield fault(subject, key, "DeepEP does this reduction already", suggestion="remove it")


@rule("expert-parallel-tensor", Severity.ERROR, refused_by=RefusedBy.INIT)
def expert_parallel_tensor(subject: Subject) -> Iterator[Fault]:
    """Expert and tensor parallelism are combined with a setting that excludes it.

    `module_inject/auto_ep_folding.py: validate_folding_global` requires an `autoep_size` above 1
    and equal presets, and excludes offload, DeepCompile and `use_data_before_expert_parallelism`.

    Suggestion: remove the setting, or set `tensor_parallel.autotp_size` to 1.
    """
    if not _is_on(subject) or (number(subject, _AUTOTP) or 0) <= 1:
        return
    if number(subject, _SIZE) == 1:
        yield fault(subject, _SIZE, f"{_AUTOTP} needs 2 or more", suggestion="raise it")
    excluded = [
        f"{ZERO}.offload_{what}"
        for what in ("optimizer", "param")
        if offload_device(subject, what) in ("cpu", "nvme")
    ]
    for switch in ("compile.deepcompile", "use_data_before_expert_parallelism"):
        if flag(subject, switch):
            excluded.append(switch)
    for key in excluded:
        yield fault(
            subject,
            key,
            "not supported with expert and tensor parallelism together",
            suggestion=f"remove it, or set {_AUTOTP} to 1",
        )
    presets = [value_of(subject, f"{part}.preset_model") for part in ("tensor_parallel", _SECTION)]
    if None not in presets and presets[0] != presets[1]:
        yield fault(
            subject,
            f"{_SECTION}.preset_model",
            "must be that of tensor_parallel",
            suggestion="remove one of them",
        )


@rule("expert-parallel-zero-3", Severity.ERROR, refused_by=RefusedBy.INIT)
def expert_parallel_zero_3(subject: Subject) -> Iterator[Fault]:
    """ZeRO++ is combined with expert parallelism.

    `runtime/engine.py: _validate_zero3_moe_compatibility` excludes hpZ and quantized gradients at
    stage 3 for a model with experts.

    Suggestion: remove the ZeRO++ key.
    """
    if not _is_on(subject) or subject.zero_stage != 3:
        return
    hpz, gradients = f"{ZERO}.zero_hpz_partition_size", f"{ZERO}.zero_quantized_gradients"
    asked = [hpz] if (number(subject, hpz) or 0) > 1 else []
    asked += [gradients] if flag(subject, gradients) else []
    for key in asked:
        yield fault(subject, key, "not supported with expert_parallel", suggestion="remove it")


RULES = (
    expert_parallel_size,
    expert_parallel_choice,
    expert_parallel_combination,
    expert_parallel_tensor,
    expert_parallel_zero_3,
)
