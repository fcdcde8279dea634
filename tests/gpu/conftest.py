"""A pool whose devices each play rank 0."""

from collections.abc import Iterator

import pytest

from autotune.pool.pool import Pool, PoolRequest


@pytest.fixture(scope="module")
def emulating_pool() -> Iterator[Pool]:
    request = PoolRequest(world_size=64, device_kind="cuda", model_type="llama", emulate=True)
    with Pool(request) as pool:
        pool.build_ops(("fused_adam", "cpu_adam"), on_note=print)
        yield pool
