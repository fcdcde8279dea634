"""The learning-rate schedules that DeepSpeed can build, and what each accepts.

DeepSpeed 0.19.8, `runtime/lr_schedules.py`, and torch 2.13. A test compares the names with the
installed signatures.
"""

_WARMUP = ("warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type")
_LAST = "last_batch_iteration"

OWN = {
    "LRRangeTest": (
        *("lr_range_test_min_lr", "lr_range_test_step_size", "lr_range_test_step_rate"),
        *("lr_range_test_staircase", _LAST),
    ),
    "OneCycle": (
        *("cycle_min_lr", "cycle_max_lr", "decay_lr_rate", "cycle_first_step_size"),
        *("cycle_second_step_size", "cycle_first_stair_count", "cycle_second_stair_count"),
        *("decay_step_size", "cycle_momentum", "cycle_min_mom", "cycle_max_mom"),
        *("decay_mom_rate", _LAST),
    ),
    "WarmupLR": (*_WARMUP, _LAST),
    "WarmupDecayLR": ("total_num_steps", *_WARMUP, _LAST),
    "WarmupCosineLR": (
        *("total_num_steps", "warmup_min_ratio", "warmup_num_steps", "cos_min_ratio"),
        *("warmup_type", _LAST),
    ),
}
"""DeepSpeed's schedules with their parameters."""

REQUIRED = {
    "OneCycle": ("cycle_min_lr", "cycle_max_lr"),
    "WarmupDecayLR": ("total_num_steps",),
    "WarmupCosineLR": ("total_num_steps",),
}

TORCH = (
    *("ChainedScheduler", "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts"),
    *("CyclicLR", "ExponentialLR", "LambdaLR", "LinearLR", "MultiStepLR", "MultiplicativeLR"),
    *("OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR"),
)
"""`torch.optim.lr_scheduler`."""

STEP_COUNTS = ("total_num_steps", "warmup_num_steps")
"""Must be positive; the warm-up an integer too."""
RATES = (
    *("warmup_min_lr", "warmup_max_lr", "warmup_min_ratio", "cos_min_ratio", "cycle_min_lr"),
    *("cycle_max_lr", "lr_range_test_min_lr", "lr_range_test_step_rate"),
)
"""Numbers of at least 0, or a list with one for each parameter group."""
WARMUP_TYPES = ("log", "linear")
