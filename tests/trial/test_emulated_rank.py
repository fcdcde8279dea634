"""What an emulated rank keeps from DeepSpeed; in pure Python, on optimizers of the same build."""

from types import SimpleNamespace

import pytest

from autotune.trial import emulated_rank
from autotune.trial.spec import Emulation, Place
from tests.clock import Clock

checked: list[float] = []


def is_invalid_grad_norm(norm: float) -> bool:
    """Stand where DeepSpeed's optimizers find theirs: in their own module."""
    checked.append(norm)
    return True


class _Zero:
    def __init__(self) -> None:
        self.loss_scaler = SimpleNamespace(cur_scale=2.0**16)
        self.num_checks = 0

    def has_overflow(self, partition_gradients: bool = True) -> bool:
        self.num_checks += 1
        return partition_gradients


class _Fused:
    def __init__(self) -> None:
        self.loss_scale_config = SimpleNamespace(cur_scale=0.5)
        self.overflow_checker = _Checker()


class _Checker:
    def has_overflow(self, params: object) -> bool:
        return True

    def check_using_norm(self, norms: object) -> bool:
        return True


def test_no_step_is_skipped_though_every_check_runs() -> None:
    global is_invalid_grad_norm
    real = is_invalid_grad_norm
    zero = _Zero()
    try:
        emulated_rank.take_every_step(zero)
        assert not is_invalid_grad_norm(float("nan"))
    finally:
        is_invalid_grad_norm = real
    assert len(checked) == 1
    assert not zero.has_overflow(partition_gradients=True)
    assert zero.num_checks == 1
    assert zero.loss_scaler.cur_scale == 1.0


def test_optimizers_that_leave_the_check_to_another_are_covered() -> None:
    global is_invalid_grad_norm
    real = is_invalid_grad_norm
    fused = _Fused()
    try:
        emulated_rank.take_every_step(fused)
    finally:
        is_invalid_grad_norm = real
    assert not fused.overflow_checker.has_overflow([])
    assert not fused.overflow_checker.check_using_norm([])
    assert fused.loss_scale_config.cur_scale == 0.5


def test_a_rank_stands_on_the_device_it_was_given() -> None:
    place = Place(
        rank=0,
        world_size=1,
        local_rank=0,
        local_world_size=1,
        master_addr="127.0.0.1",
        master_port=0,
        visible_devices="5",
        log_path="rank-0.log",
    )
    emulation = Emulation(rank=1023, world_size=1024, local_world_size=8, host_bytes=0)
    environment = emulated_rank.place_of(emulation, place).environment()
    assert environment["WORLD_SIZE"] == "1024"
    assert environment["LOCAL_WORLD_SIZE"] == "8"
    assert environment["RANK"] == "1023"
    assert environment["LOCAL_RANK"] == "0"
    assert environment["CUDA_VISIBLE_DEVICES"] == "5"


@pytest.mark.parametrize(("slowdown", "step_s"), [(1.0, 3.0), (4.0, 12.0)])
def test_an_offloaded_step_takes_as_long_as_beside_its_neighbours(
    slowdown: float, step_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(emulated_rank, "time", clock)
    backward_s = [5.0]

    def step() -> str:
        clock.sleep(3.0)
        return "stepped"

    def wait() -> None:
        clock.sleep(backward_s.pop() if backward_s else 0.0)

    optimizer = SimpleNamespace(step=step)
    emulated_rank.slow_down_host(optimizer, slowdown, wait=wait)
    assert optimizer.step() == "stepped"
    # What the device still had to do before the step is no part of it.
    assert clock.now == pytest.approx(step_s if backward_s else 5.0 + step_s)
