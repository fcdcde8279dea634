"""`autotune plan`: what a config or a space needs, and what fits, without hardware."""

from autotune.plan.config import ConfigPlan, plan_config
from autotune.plan.request import PlanRequest
from autotune.plan.scale_out import ScaleOutPlan, plan_scale_out, read_counts
from autotune.plan.space import SpacePlan, plan_space

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
