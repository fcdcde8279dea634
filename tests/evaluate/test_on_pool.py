import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.evaluate.on_pool import hang_timeouts
from autotune.job.model_shape import PRESETS
from autotune.job.workload import Workload
from autotune.study.outcome import Phase
from tests.job.workloads import resolve_workload


def _workload(model: str, seq_len: int = 256) -> Workload:
    return resolve_workload(PRESETS[model], gpus=2, base={}, seq_len=seq_len)


@pytest.mark.parametrize("device_kind", ["cuda", "cpu"])
@pytest.mark.parametrize("model", PRESETS)
def test_every_phase_has_a_time_out(model: str, device_kind: str) -> None:
    silence = hang_timeouts(_workload(model), micro_batch=1, device_kind=device_kind)
    assert silence.keys() == set(Phase)
    assert all(60 <= s < 1e6 for s in silence.values())


@given(micro=st.integers(1, 64), factor=st.integers(2, 8))
def test_longer_micro_steps_may_be_silent_for_longer(micro: int, factor: int) -> None:
    workload = _workload("7b")
    longer = dataclasses.replace(workload, seq_len=workload.seq_len * factor)
    base = hang_timeouts(workload, micro_batch=micro, device_kind="cuda")
    for other in (
        hang_timeouts(workload, micro_batch=micro * factor, device_kind="cuda"),
        hang_timeouts(longer, micro_batch=micro, device_kind="cuda"),
        hang_timeouts(workload, micro_batch=micro, device_kind="cpu"),
    ):
        assert other[Phase.STEADY] > base[Phase.STEADY]
        assert other[Phase.FIRST_STEP] > base[Phase.FIRST_STEP]


def test_a_larger_model_may_be_silent_for_longer_in_every_phase() -> None:
    small = hang_timeouts(_workload("7b"), micro_batch=1, device_kind="cuda")
    large = hang_timeouts(_workload("70b"), micro_batch=1, device_kind="cuda")
    assert all(large[phase] > small[phase] for phase in Phase)


def test_initialisation_has_time_to_compile_an_optimizer() -> None:
    # CPUAdam takes minutes on two cores.
    assert hang_timeouts(_workload("tiny"), micro_batch=1, device_kind="cpu")[Phase.INIT] >= 600
