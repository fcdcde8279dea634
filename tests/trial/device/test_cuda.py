"""The CUDA device on a card that is arithmetic; the real one is in tests/gpu."""

import pytest
import torch

from autotune.study.outcome import Phase
from autotune.trial.device.cuda import COMING_BYTES, CudaDevice
from autotune.trial.failure_kind import FailureKind
from autotune.trial.oom_details import Shortage
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


def _until_refused(card: FakeCard, device: CudaDevice, *sizes: int) -> Shortage:
    *fitting, last = sizes
    for size in fitting:
        card.allocate(size)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        card.allocate(last)
    shortage = device.shortage_of(caught.value)
    assert shortage is not None
    return shortage


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


def test_over_the_ceiling_the_missing_bytes_are_told_exactly(
    card: FakeCard, device: CudaDevice
) -> None:
    device.enforce_ceiling()
    assert card.allowed is not None
    shortage = _until_refused(card, device, 30 * GIB, 20 * GIB)
    assert (shortage.kind, shortage.asked_bytes) == (FailureKind.MEMORY, 20 * GIB)
    assert shortage.short_bytes is not None
    assert shortage.short_bytes == _near(50 * GIB - card.allowed)
    assert shortage.needed_bytes == CEILING + shortage.short_bytes
    assert f"{shortage.short_bytes:,} bytes short under the ceiling" in shortage.describe()


def test_what_unwound_frames_have_freed_does_not_change_the_shortage(
    card: FakeCard, device: CudaDevice
) -> None:
    device.enforce_ceiling()
    assert card.allowed is not None
    card.allocate(30 * GIB)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        card.allocate(15 * GIB)
    card.reserved = 0
    shortage = device.shortage_of(caught.value)
    assert shortage is not None
    assert shortage.short_bytes == _near(45 * GIB - card.allowed)


def test_before_a_ceiling_is_enforced_only_the_card_refuses(
    card: FakeCard, device: CudaDevice
) -> None:
    shortage = _until_refused(card, device, 60 * GIB, 20 * GIB)
    assert (shortage.kind, shortage.short_bytes) == (FailureKind.DEVICE_MEMORY, GIB)


def test_a_card_that_another_program_fills_is_full_itself(
    card: FakeCard, device: CudaDevice
) -> None:
    device.enforce_ceiling()
    card.outside = 60 * GIB  # since
    shortage = _until_refused(card, device, 15 * GIB, 10 * GIB)
    assert shortage.kind is FailureKind.DEVICE_MEMORY
    assert shortage.short_bytes == 5 * GIB
    assert "on the device itself" in shortage.describe()


def test_a_torch_without_the_observer_tells_by_its_text(card: FakeCard, device: CudaDevice) -> None:
    device.enforce_ceiling()
    assert card.allowed is not None
    card.observer = None
    shortage = _until_refused(card, device, 30 * GIB, 20 * GIB)
    assert shortage.kind is FailureKind.MEMORY
    assert shortage.short_bytes == _near(50 * GIB - card.allowed)


def test_an_error_of_another_kind_is_no_shortage(device: CudaDevice) -> None:
    assert device.shortage_of(ValueError("out of memory")) is None
    assert device.shortage_of(RuntimeError("shapes differ")) is None
