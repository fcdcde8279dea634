"""Builds the ds_config of a run from base config, workload and proposal. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from autotune import dotted
from autotune.ds_config.auto import resolve_auto
from autotune.ds_config.key_aliases import documented
from autotune.errors import ConfigError
from autotune.job.workload import Workload

MICRO_BATCH = "train_micro_batch_size_per_gpu"
BATCH_KEYS = frozenset({"train_batch_size", MICRO_BATCH, "gradient_accumulation_steps"})

# Sections that report outside the run; a trial must not open runs or write files there.
_MONITORS = frozenset({"tensorboard", "wandb", "comet", "csv_monitor"})


def build_ds_config(
    base: Mapping[str, Any],
    workload: Workload,
    values: Mapping[str, Any],
    *,
    searched: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the whole ds_config of one training job.

    Every key of the base config that is not searched is unchanged; "auto" is replaced by Hugging
    Face's value.

    Args:
        base: the user's config; empty without one.
        workload: sets batch sizes, precision, optimizer and clipping.
        values: dotted ds_config keys to set, among them the micro batch (sequences per rank and
            micro step) if it is searched.
        searched: dotted keys that the study searches: their base values are dropped, so that a
            key which a proposal leaves out is left out.

    Raises:
        ConfigError: the micro batch does not divide the sequences of a rank.
    """
    config = without_searched(resolve_auto(base, workload), searched)
    config = dotted.updated(config, values)
    micro = int(config.get(MICRO_BATCH) or _micro_batch_of(base, workload))
    per_rank = workload.sequences_per_rank
    if per_rank % micro:
        raise ConfigError(
            f"{MICRO_BATCH}={micro}: does not divide the {per_rank} sequences of a rank "
            f"(global batch {workload.global_batch_size} / {workload.world_size} ranks); "
            f"nearest: {', '.join(map(str, nearest_divisors(per_rank, micro)))}"
        )
    config |= {
        "train_batch_size": workload.global_batch_size,
        MICRO_BATCH: micro,
        "gradient_accumulation_steps": per_rank // micro,
        "optimizer": resolve_auto({"optimizer": workload.optimizer}, workload)["optimizer"],
        "gradient_clipping": workload.gradient_clipping,
    }
    return _with_precision(config, workload.precision)


def without_searched(config: Mapping[str, Any], searched: Iterable[str]) -> dict[str, Any]:
    """Return a config without some keys, under any of their names.

    A deprecated name counts too: DeepSpeed refuses `cpu_offload` together with `offload_optimizer`.
    """
    keys = frozenset(searched)
    # A switch that is off has no effect, but conflicts like one that is on.
    spelled = {
        key: documented({key: True if value is False else value})
        for key, value in dotted.flatten(config).items()
    }
    return dotted.without(
        config, keys | {key for key, names in spelled.items() if keys & names.keys()}
    )


def shorten(ds_config: Mapping[str, Any], *, timed_accumulation: int) -> dict[str, Any]:
    """Return the config of a trial that runs fewer micro steps per optimizer step.

    Monitors are switched off: a trial must not appear there.
    """
    accumulation = ds_config["gradient_accumulation_steps"]
    return dotted.without(ds_config, _MONITORS) | {
        "train_batch_size": ds_config["train_batch_size"] // accumulation * timed_accumulation,
        "gradient_accumulation_steps": timed_accumulation,
    }


def nearest_divisors(number: int, wanted: int) -> tuple[int, ...]:
    """Return the divisors of `number` next to `wanted`, at most one on either side.

    Example:
        >>> nearest_divisors(32, 6)
        (4, 8)
    """
    divisors = [n for n in range(1, number + 1) if number % n == 0]
    below = [n for n in divisors if n <= wanted][-1:]
    above = [n for n in divisors if n > wanted][:1]
    return (*below, *above)


def _micro_batch_of(base: Mapping[str, Any], workload: Workload) -> int:
    """Return the micro batch that DeepSpeed would derive from the base config's other sizes."""
    accumulation = base.get("gradient_accumulation_steps")
    if isinstance(accumulation, int) and workload.sequences_per_rank % accumulation == 0:
        return workload.sequences_per_rank // accumulation
    # Neither is given: one micro step per optimizer step, as DeepSpeed does.
    return workload.sequences_per_rank


def _with_precision(config: dict[str, Any], precision: str) -> dict[str, Any]:
    switches = {}
    for section in ("bf16", "fp16"):
        if section == precision:
            switches[f"{section}.enabled"] = True
        elif dotted.get(config, f"{section}.enabled"):
            switches[f"{section}.enabled"] = False
    return dotted.updated(config, switches)
