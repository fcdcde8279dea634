"""The compiled ops of DeepSpeed that the trials of a study may need."""

from collections.abc import Mapping
from typing import Any

from autotune import dotted
from autotune.ds_config.compiled_ops import DECIDING, compiled_ops
from autotune.ds_config.fields.table import default_of
from autotune.ds_config.key_aliases import documented
from autotune.job.workload import Workload
from autotune.space.parameter import Choices
from autotune.space.space import SearchSpace


def needed_ops(space: SearchSpace, workload: Workload, base: Mapping[str, Any]) -> tuple[str, ...]:
    """Return DeepSpeed's names of the ops that any trial may load, baselines included.

    Args:
        space: what is searched.
        workload: every trial has its optimizer.
        base: the user's ds_config; empty without one.

    Example:
        >>> from autotune.job.model_shape import PRESETS
        >>> from autotune.space import load_space
        >>> workload = Workload(
        ...     model=PRESETS["7b"],
        ...     seq_len=2048,
        ...     global_batch_size=256,
        ...     world_size=8,
        ...     precision="bf16",
        ...     optimizer={"type": "AdamW"},
        ...     gradient_clipping=1.0,
        ... )
        >>> needed_ops(load_space("zero"), workload, {})
        ('fused_adam', 'cpu_adam')
    """
    given = documented(dotted.flatten(base))
    searched = {
        parameter.key: parameter.kind.values
        for parameter in space.parameters
        if isinstance(parameter.kind, Choices)
    }
    possible = {key: {given.get(key, default_of(key)), *searched.get(key, ())} for key in DECIDING}
    return compiled_ops(workload.optimizer, possible)
