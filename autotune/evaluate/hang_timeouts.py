"""How long a rank may be silent before it counts as hung, by phase and by the model's size."""

from collections.abc import Mapping

from autotune.job.workload import Workload
from autotune.study.outcome import Phase

# Far below what any device in use delivers: a time-out must never end a healthy trial.
_FLOOR_FLOPS = {"cuda": 5e12, "cpu": 1e9}
_FLOPS_PER_PARAMETER_AND_TOKEN = 8
"""Forward, backward, and the forward again under activation checkpointing."""
_S_PER_PARAMETER = 2e-8
"""Building, copying or stepping a parameter on the slowest host we care for."""


def hang_timeouts(
    workload: Workload, *, micro_batch: int, device_kind: str
) -> Mapping[Phase, float]:
    """Return seconds without a progress mark after which a rank is ended.

    A rank marks every micro step, so a step's silence is that of its longest micro step.
    """
    parameters = workload.model.num_parameters
    states_s = parameters * _S_PER_PARAMETER
    tokens = micro_batch * workload.seq_len
    flops = _FLOPS_PER_PARAMETER_AND_TOKEN * parameters * tokens
    micro_step_s = flops / _FLOOR_FLOPS[device_kind]
    return {
        Phase.BUILD: 120 + states_s,
        # An optimizer kernel may have to be compiled: minutes on few cores.
        Phase.INIT: 600 + states_s,
        Phase.FIRST_STEP: 120 + states_s + 2 * micro_step_s,
        Phase.STEADY: 60 + states_s + micro_step_s,
    }
