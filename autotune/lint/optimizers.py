"""The optimizers that DeepSpeed can build, and what each accepts.

DeepSpeed 0.19.8, `runtime/engine.py: _configure_basic_optimizer`, and torch 2.13. A test compares
the names with the installed signatures.
"""

from autotune.lint.config_values import offload_device, value_of
from autotune.lint.subject import Subject

OWN = ("adagrad", "adam", "adamw", "lamb", "muadam", "muadamw", "musgd", "lion", "muon")
"""`runtime/config.py: DEEPSPEED_OPTIMIZERS`; written in any case."""

_TORCH_FLAGS = ("foreach", "maximize", "differentiable")
TORCH = {
    "ASGD": ("lr", "lambd", "alpha", "t0", "weight_decay", *_TORCH_FLAGS, "capturable"),
    "Adadelta": ("lr", "rho", "eps", "weight_decay", *_TORCH_FLAGS, "capturable"),
    "Adafactor": ("lr", "beta2_decay", "eps", "d", "weight_decay", "foreach", "maximize"),
    "Adamax": ("lr", "betas", "eps", "weight_decay", *_TORCH_FLAGS, "capturable"),
    "LBFGS": (
        *("lr", "max_iter", "max_eval", "tolerance_grad", "tolerance_change"),
        *("history_size", "line_search_fn"),
    ),
    "NAdam": (
        *("lr", "betas", "eps", "weight_decay", "momentum_decay", "decoupled_weight_decay"),
        *(*_TORCH_FLAGS, "capturable"),
    ),
    "RAdam": (
        *("lr", "betas", "eps", "weight_decay", "decoupled_weight_decay"),
        *(*_TORCH_FLAGS, "capturable"),
    ),
    "RMSprop": (
        *("lr", "alpha", "eps", "weight_decay", "momentum", "centered"),
        *(*_TORCH_FLAGS, "capturable"),
    ),
    "Rprop": ("lr", "etas", "step_sizes", *_TORCH_FLAGS, "capturable"),
    "SGD": (
        *("lr", "momentum", "dampening", "weight_decay", "nesterov"),
        *(*_TORCH_FLAGS, "fused"),
    ),
    "SparseAdam": ("lr", "betas", "eps", "maximize"),
}
"""`torch.optim`: every class that DeepSpeed has no name for, with this spelling."""

_ADAM = ("lr", "betas", "eps", "weight_decay", "amsgrad")
_TORCH_ADAM = (*_ADAM, *_TORCH_FLAGS, "capturable", "fused")
_FUSED_ADAM = (*_ADAM, "bias_correction", "set_grad_none")
_CPU_ADAM = (*_ADAM, "bias_correction")
_ADAM_SWITCHES = ("torch_adam", "adam_w_mode", "fp32_optimizer_states")
"""What the engine removes before it builds Adam."""
_LAMB = (*_ADAM, "bias_correction", "eps_inside_sqrt", "max_coeff", "min_coeff")
_LION = ("lr", "betas", "weight_decay")
_TORCH_ADAGRAD = (
    *("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps"),
    *(*_TORCH_FLAGS, "fused"),
)
MUON = (
    *("lr", "muon_lr", "adam_lr", "momentum", "weight_decay", "ns_method", "betas", "eps"),
    *("per_head_muon", *_ADAM_SWITCHES, "foreach"),
)
"""Others are dropped silently."""

_TESTED_CLASSES = (
    *("Adam", "AdamW", "Adagrad", "FusedAdam", "DeepSpeedCPUAdam", "ZenFlowCPUAdam"),
    *("DeepSpeedCPUAdagrad", "DeepSpeedCPULion", "FusedLion", "MuonWithAuxAdam"),
)
"""`runtime/zero/utils.py: ZERO_SUPPORTED_OPTIMIZERS`."""
_PACKAGES = ("torch", "deepspeed", "apex")
_CPU_CLASSES = ("DeepSpeedCPUAdam", "DeepSpeedCPULion", "ZenFlowCPUAdam")


def configured_optimizer(subject: Subject) -> str | None:
    """Return the optimizer that DeepSpeed builds from the config, by DeepSpeed's name.

    None where the config names none, or the program creates one, which DeepSpeed then uses;
    gpt-neox always does.
    """
    name = subject.value("optimizer.type")
    brought = subject.launch.client_optimizer is not None or subject.form == "neox"
    if brought or not isinstance(name, str) or name == "auto":
        return None
    return name.lower() if name.lower() in OWN else name


def is_from_torch(name: str | None) -> bool:
    """Whether DeepSpeed uses an unchanged optimizer of `torch.optim`."""
    return name in TORCH


def is_deepspeed_cpu(client: str) -> bool:
    """Whether a class of the program is one of DeepSpeed's optimizers for the CPU."""
    return client.rsplit(".", 1)[-1] in _CPU_CLASSES


def is_tested_class(client: str) -> bool:
    """Whether the class of a program's optimizer is tested with ZeRO.

    Example:
        >>> is_tested_class("torch.optim.AdamW"), is_tested_class("bitsandbytes.optim.AdamW")
        (True, False)
    """
    package, _, _ = client.partition(".")
    name = client.rsplit(".", 1)[-1]
    return name in _TESTED_CLASSES and (package in _PACKAGES or package == name)


def is_tested(name: str) -> bool:
    """Whether the optimizer that DeepSpeed builds for a name is tested with ZeRO.

    MuAdam and MuAdamW are torch's classes.
    """
    return name in ("adam", "adamw", "adagrad", "lion", "muon", "muadam", "muadamw")


def parameters_of(subject: Subject) -> tuple[str, ...] | None:
    """Return the valid keys of `optimizer.params`; None where they are not known or not checked."""
    name = configured_optimizer(subject)
    device = offload_device(subject, "optimizer")
    if name is None or device is None:
        return None
    on_cpu = device != "none"
    if name in ("adam", "adamw"):
        if value_of(subject, "optimizer.params.torch_adam"):
            return (*_TORCH_ADAM, *_ADAM_SWITCHES)
        return (*(_CPU_ADAM if on_cpu else _FUSED_ADAM), *_ADAM_SWITCHES)
    if name == "lion":
        return (*_LION, "fp32_optimizer_states" if on_cpu else "set_grad_none")
    if name == "adagrad":
        cpu = ("lr", "eps", "weight_decay", "amsgrad", "fp32_optimizer_states")
        return cpu if on_cpu else _TORCH_ADAGRAD
    return _LAMB if name == "lamb" else TORCH.get(name)
