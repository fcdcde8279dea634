"""Which keys of a ds_config a estimate that is too large hangs on: those of its largest items."""

from collections.abc import Mapping

from autotune.job.batch import MICRO_BATCH
from autotune.planning.planned_job import PlannedJob
from autotune.predict.memory.estimate import HostEstimate
from autotune.predict.memory.fit import ACTIVATION_ITEMS, Fit
from autotune.predict.zero_settings import ZeroSettings

STAGE = "zero_optimization.stage"
OFFLOAD_OPTIMIZER = "zero_optimization.offload_optimizer"
OFFLOAD_PARAM = "zero_optimization.offload_param"
BUCKET = "zero_optimization.reduce_bucket_size"
LIVE = "zero_optimization.stage3_max_live_parameters"

_OPTIMIZER = "optimizer"
_WEIGHTS = "weights"
_BUCKETS = "buckets"
_GATHERED = "gathered"
_ACTIVATIONS = "activations"
_FAMILIES: Mapping[str, tuple[str, ...]] = {
    _WEIGHTS: ("weights", "frozen_weights", "secondary_weights"),
    _OPTIMIZER: (
        "master_weights",
        "moments",
        "gradients",
        "gradient_partition",
        "step_gradients",
        "norm_scratch",
    ),
    _BUCKETS: ("reduce_bucket", "reduction_copy", "offload_buffer"),
    _GATHERED: ("gathered_weights", "gather_buffer", "persistent_weights"),
    _ACTIVATIONS: ACTIVATION_ITEMS,
}
_PARAM_ITEMS = ("weights", "weight_buffers")
_LEAST_SHARE = 0.1
"""Of a host's estimate: an offload that takes less is not what it hangs on."""


def device_fields(job: PlannedJob, fit: Fit) -> tuple[str, ...]:
    """Return the keys that device memory hangs on, the first first.

    The key of the largest items, and the micro batch if with one sequence it would fit: alone at
    stage 3, where nothing is left to be sharded.
    """
    items = fit.estimate.device.items
    sizes = {
        family: sum(items.get(name, 0) for name in names) for family, names in _FAMILIES.items()
    }
    largest = max(sizes, key=lambda family: sizes[family])
    field = _key_of(largest, fit.training.zero)
    if field == MICRO_BATCH or not _fits_with_one_sequence(job, fit):
        return (field,)
    return (MICRO_BATCH, field) if field == STAGE else (MICRO_BATCH,)


def _key_of(family: str, zero: ZeroSettings) -> str:
    if family == _ACTIVATIONS:
        return MICRO_BATCH
    if family == _BUCKETS:
        return BUCKET
    if family == _GATHERED:
        return LIVE
    if zero.stage < 3:
        # Of states, a higher stage leaves a share only.
        return STAGE
    if family == _OPTIMIZER and not zero.offload_optimizer.enabled:
        return OFFLOAD_OPTIMIZER
    return OFFLOAD_PARAM if zero.offload_optimizer.enabled else OFFLOAD_OPTIMIZER


def _fits_with_one_sequence(job: PlannedJob, fit: Fit) -> bool:
    if fit.training.micro_batch_size == 1:
        return False
    device = job.screen(job.training(fit.settings, {MICRO_BATCH: 1})).device
    need = device.peak_allocated_bytes + device.outside_bytes
    return need <= job.limit_bytes


def host_fields(host: HostEstimate) -> tuple[str, ...]:
    """Return the offload sections that host memory hangs on."""
    param = sum(host.items.get(name, 0) for name in _PARAM_ITEMS)
    process = host.items.get("process", 0)
    shares = {OFFLOAD_OPTIMIZER: host.rank_bytes - param - process, OFFLOAD_PARAM: param}
    found = tuple(k for k, size in shares.items() if size >= _LEAST_SHARE * host.rank_bytes)
    return found or ("zero_optimization",)
