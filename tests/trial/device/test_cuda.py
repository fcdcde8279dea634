"""The CUDA device on a card that is arithmetic; the real one is in tests/gpu."""

import pytest
import torch

from autotune.study.outcome import Phase
from autotune.trial.device.cuda import COMING_BYTES, CudaDevice
from autotune.trial.failure_kind import FailureKind
from autotune.trial.oom_details import OomDetails
from tests.trial.device.fake_cuda import GIB, FakeCard

CEILING = 40 * GIB


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> FakeCard:
    card = FakeCard()
    card.install(monkeypatch)
    return card


@pytest.fixture
def device(card: FakeCard) -> CudaDevice:
    del card  # installed
    return CudaDevice(ceiling_bytes=CEILING, local_rank=0, num_threads=torch.get_num_threads())


def _until_refused(card: FakeCard, device: CudaDevice, *sizes: int) -> OomDetails:
    *fitting, last = sizes
    for size in fitting:
        card.allocate(size)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        card.allocate(last)
    oom = device.oom_of(caught.value)
    assert oom is not None
    return oom


def _near(num_bytes: int) -> object:
    return pytest.approx(num_bytes, abs=1)  # a fraction of the card is a float


def test_the_ceiling_counts_what_is_outside_the_allocator(
    card: FakeCard, device: CudaDevice
) -> None:
    device.enforce_ceiling()
    assert card.allowed == _near(CEILING - GIB - COMING_BYTES[Phase.BUILD])
    for phase in (Phase.BUILD, Phase.INIT, Phase.FIRST_STEP):
        device.take_peak(phase)
    card.outside = 2 * GIB  # NCCL, kernels
    device.enforce_ceiling()
    assert card.allowed == _near(CEILING - 2 * GIB - COMING_BYTES[Phase.STEADY])


def test_under_the_ceiling_the_driver_never_sees_more_than_it(
    card: FakeCard, device: CudaDevice
) -> None:
    for phase, grows_by in COMING_BYTES.items():
        device.enforce_ceiling()
        assert card.allowed is not None
        # Whatever the last phase left over, this one takes.
        card.cached = 0
        card.reserved = card.allowed
        card.outside += grows_by
        assert device.take_peak(phase).used_bytes <= CEILING
        card.cached = card.reserved // 2


def test_cache_of_earlier_phases_is_given_back_where_the_ceiling_needs_it(
    card: FakeCard, device: CudaDevice
) -> None:
    device.enforce_ceiling()
    card.allocate(30 * GIB)
    card.cached = 20 * GIB
    card.outside += 15 * GIB
    device.enforce_ceiling()
    assert card.reserved == 10 * GIB
    assert device.num_alloc_retries() == 0
    card.outside -= 15 * GIB
    card.cached = 5 * GIB
    device.enforce_ceiling()
    assert card.reserved == 10 * GIB  # there was room for it


def test_over_the_ceiling_the_missing_bytes_are_exact(card: FakeCard, device: CudaDevice) -> None:
    device.enforce_ceiling()
    assert card.allowed is not None
    oom = _until_refused(card, device, 30 * GIB, 20 * GIB)
    assert (oom.kind, oom.asked_bytes) == (FailureKind.MEMORY, 20 * GIB)
    assert oom.short_bytes is not None
    assert oom.short_bytes == _near(50 * GIB - card.allowed)
    assert oom.needed_bytes == CEILING + oom.short_bytes
    assert f"{oom.short_bytes:,} bytes short under the ceiling" in oom.describe()


def test_memory_freed_by_unwound_frames_does_not_change_the_missing_bytes(
    card: FakeCard, device: CudaDevice
) -> None:
    device.enforce_ceiling()
    assert card.allowed is not None
    card.allocate(30 * GIB)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        card.allocate(15 * GIB)
    card.reserved = 0
    oom = device.oom_of(caught.value)
    assert oom is not None
    assert oom.short_bytes == _near(45 * GIB - card.allowed)


def test_before_a_ceiling_is_enforced_only_the_card_refuses(
    card: FakeCard, device: CudaDevice
) -> None:
    oom = _until_refused(card, device, 60 * GIB, 20 * GIB)
    assert (oom.kind, oom.short_bytes) == (FailureKind.DEVICE_MEMORY, GIB)


def test_a_card_that_another_program_fills_is_full_itself(
    card: FakeCard, device: CudaDevice
) -> None:
    device.enforce_ceiling()
    card.outside = 60 * GIB  # since
    oom = _until_refused(card, device, 15 * GIB, 10 * GIB)
    assert oom.kind is FailureKind.DEVICE_MEMORY
    assert oom.short_bytes == 5 * GIB
    assert "on the device, below the ceiling" in oom.describe()


def test_a_torch_without_the_observer_is_read_from_its_text(
    card: FakeCard, device: CudaDevice
) -> None:
    device.enforce_ceiling()
    assert card.allowed is not None
    card.observer = None
    oom = _until_refused(card, device, 30 * GIB, 20 * GIB)
    assert oom.kind is FailureKind.MEMORY
    assert oom.short_bytes == _near(50 * GIB - card.allowed)


def test_an_error_of_another_kind_is_not_out_of_memory(device: CudaDevice) -> None:
    assert device.oom_of(ValueError("out of memory")) is None
    assert device.oom_of(RuntimeError("shapes differ")) is None
