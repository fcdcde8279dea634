"""A slot without its preloaded parent: when its device counts as empty, and what its ranks get."""

from collections.abc import Callable, Iterator

import pytest

from autotune.errors import DispatchError
from autotune.pool import slot as slot_module
from autotune.pool.slot import Slot, _parent_environment

GIB = 2**30
MakeSlot = Callable[[str], Slot]


class _Card:
    """What the driver counts as used on this slot's card."""

    used = 40 * GIB

    def used_bytes(self, visible_devices: str) -> int:
        assert visible_devices in ("3", "")  # never another card's; none for CPU ranks
        return self.used


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> _Card:
    card = _Card()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    monkeypatch.setattr(slot_module, "cuda_used_bytes", card.used_bytes)
    monkeypatch.setattr(slot_module, "cuda_processes", lambda _: ((12, GIB),))
    monkeypatch.setattr(Slot, "_start_parent", lambda _self: None)
    return card


@pytest.fixture
def make_slot(card: _Card) -> Iterator[Callable[[str], Slot]]:
    """Return a function that makes a slot of a device kind."""
    del card  # in its place
    made: list[Slot] = []

    def make(device_kind: str) -> Slot:
        made.append(Slot(device_kind, "llama"))
        return made[-1]

    yield make
    for slot in made:
        slot._log_folder.cleanup()


def test_what_was_still_ending_when_a_slot_began_does_not_hide_a_later_leak(
    card: _Card, make_slot: MakeSlot
) -> None:
    slot = make_slot("cuda")  # a killed study's ranks still hold 40 GiB
    assert slot._is_empty(0.0)
    card.used = GIB // 2
    assert slot._is_empty(0.0)
    card.used = 10 * GIB
    assert not slot._is_empty(0.0)
    card.used = GIB // 2 + (32 << 20)
    assert slot._is_empty(0.0)


def test_memory_that_is_not_freed_is_reported_with_its_holder(
    card: _Card, make_slot: MakeSlot, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = make_slot("cuda")
    monkeypatch.setattr(slot_module, "_EMPTY_S", -1.0)
    card.used += GIB
    with pytest.raises(DispatchError, match=rf"cuda:3: {GIB} bytes .* \(process 12: {GIB} bytes\)"):
        slot._is_empty(0.0)


def test_ranks_get_an_arch_list_that_deepspeed_can_read_with_a_note(
    make_slot: MakeSlot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
    assert _parent_environment("cuda")["TORCH_CUDA_ARCH_LIST"] == "9.0"
    [note] = make_slot("cuda")._notes()
    assert "TORCH_CUDA_ARCH_LIST=9.0a" in note
    assert "the ranks get 9.0" in note
    assert make_slot("cpu")._notes() == []
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "native")
    assert _parent_environment("cuda")["TORCH_CUDA_ARCH_LIST"] == ""
    assert "ask their devices" in make_slot("cuda")._notes()[0]
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    assert "TORCH_CUDA_ARCH_LIST" not in _parent_environment("cuda")
    assert make_slot("cuda")._notes() == []
