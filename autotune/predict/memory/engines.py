"""The engine that DeepSpeed would use for a job."""

from collections.abc import Sequence

from autotune.predict.memory.allocator import CachingAllocator
from autotune.predict.memory.bf16_accumulation import Bf16AccumulationEngine
from autotune.predict.memory.engine import Engine
from autotune.predict.memory.flat import FlatEngine
from autotune.predict.memory.sharded import ShardedEngine
from autotune.predict.memory.unsharded import UnshardedEngine
from autotune.predict.program.events import Parameter
from autotune.predict.training_job import Training


def create_engine(
    training: Training,
    parameters: Sequence[Parameter],
    allocator: CachingAllocator,
    *,
    rank: int = 0,
) -> Engine:
    """Return the engine that DeepSpeed would use (`_do_optimizer_sanity_check`, engine.py)."""
    stage = training.zero.stage
    if stage == 3:
        return ShardedEngine(training, parameters, allocator)
    if stage == 0:
        return UnshardedEngine(training, parameters, allocator)
    wide_sums = training.precision == "bf16" and training.accumulation_bytes == 4
    if stage == 1 and wide_sums and not training.zero.offload_optimizer.enabled:
        return Bf16AccumulationEngine(training, parameters, allocator)
    return FlatEngine(training, parameters, allocator, rank=rank)
