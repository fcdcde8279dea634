"""`autotune plan`: memory and speed of a config or a space, predicted without hardware."""

from autotune.planning.config import ConfigPlan, plan_config
from autotune.planning.request import PlanRequest
from autotune.planning.scale_out import ScaleOutPlan, plan_scale_out, read_counts
from autotune.planning.space import SpacePlan, plan_space

__all__ = [
    "ConfigPlan",
    "PlanRequest",
    "ScaleOutPlan",
    "SpacePlan",
    "plan_config",
    "plan_scale_out",
    "plan_space",
    "read_counts",
]
