"""Follows every tensor of a traced step from allocation to its last reference."""

import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from autotune.predict.program.events import Recorder
from autotune.predict.program.items import Item

_MATRIX_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "linear", "_grouped_mm"})
_SOFTMAX_BACKWARD = "_softmax_backward_data"
_FUSED_ATTENTION_BACKWARD = "_scaled_dot_product_flash_attention_for_cpu_backward"


class StorageTracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records an event for each storage that an operation makes, and for its end.

    Fake tensors run CPU kernels' shapes; where CUDA's kernel needs more, that is added here.

    Args:
        recorder: takes the events.
        item_of: the kind of a new tensor, from its bytes.
        before: called with the storages that an operation reads, before it runs.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        item_of: Callable[[int], Item],
        before: Callable[[set[int]], None],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.recorder = recorder
        self.item_of = item_of
        self.before = before
        self.in_backward = False
        self.slots: dict[int, int] = {}
        """By the address of the storage's handle; known storages only."""
        self.allocations: dict[int, int] = {}
        """Slot to the index of its event, for a later change of item."""
        self.given_away: set[int] = set()
        """Slots that the engine owns: gradients that a hook has handed over."""

    def ignore(self, tensor: torch.Tensor) -> None:
        """Count a tensor as there from the start: parameters, buffers, inputs."""
        self.slots[handle(tensor)] = -1

    def made_at(self, storages: set[int]) -> list[int]:
        """Return the indices of the events that made storages; none for what was there before."""
        slots = (self.slots.get(key, -1) for key in storages)
        return [self.allocations[slot] for slot in slots if slot >= 0]

    def hand_over(self, tensor: torch.Tensor) -> int:
        """Return the slot of a tensor that the engine frees from now on."""
        slot = self.slots[handle(tensor)]
        self.given_away.add(slot)
        return slot

    def change_item(self, slot: int, item: Item) -> None:
        """Say what a tensor was for, once that is known."""
        self._change(slot, item=item)

    def change_size(self, slot: int, num_bytes: int) -> None:
        """Say how much of a tensor the rank has of its own."""
        self._change(slot, num_bytes=num_bytes)

    def _change(self, slot: int, *, item: Item | None = None, num_bytes: int | None = None) -> None:
        index = self.allocations[slot]
        kind, first, size, known = self.recorder.events[index]
        size = size if num_bytes is None else num_bytes
        known = known if item is None else int(item)
        self.recorder.events[index] = (kind, first, size, known)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation and record what it made."""
        del types
        name = func.overloadpacket.__name__
        inputs = list(_tensors((args, kwargs)))
        self.before({handle(tensor) for tensor in inputs})
        if name in _MATRIX_PRODUCTS:
            self.recorder.workspace(int(self.in_backward))
        product = self._softmax_product(args) if name == _SOFTMAX_BACKWARD else ()
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors(result):
            self._follow(tensor)
        scratch = self._attention_scratch(args) if name == _FUSED_ATTENTION_BACKWARD else product
        if name == "bernoulli_":
            # The CPU's dropout mask has the tensor's own type, CUDA's a byte an element.
            self._change(self.slots[handle(result)], num_bytes=result.numel())
        self.recorder.free(*scratch)
        return result

    def _follow(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.slots:
            return
        num_bytes = storage.nbytes()
        self.allocations[self.recorder.num_slots] = len(self.recorder.events)
        slot = self.recorder.allocate(num_bytes, self.item_of(num_bytes))
        self.slots[key] = slot
        weakref.finalize(storage, self._end, key, slot)

    def _end(self, key: int, slot: int) -> None:
        self.slots.pop(key, None)
        if slot not in self.given_away:
            self.recorder.free(slot)

    def _softmax_product(self, args: tuple[Any, ...]) -> tuple[int, ...]:
        """CUDA's kernel is given the product of gradient and output (SoftMax.cu)."""
        output = args[1]
        size = output.numel() * output.element_size()
        return (self.recorder.allocate(size, Item.ACTIVATION_GRADIENTS),)

    def _attention_scratch(self, args: tuple[Any, ...]) -> tuple[int, ...]:
        """CUDA's backward sums in fp32, and expands grouped keys and values to all heads."""
        query, key = args[1], args[2]
        item = Item.ACTIVATION_GRADIENTS
        rows = query.numel() // query.shape[-1]
        scratch = [self.recorder.allocate(4 * size, item) for size in (rows, query.numel())]
        if key.numel() != query.numel():
            size = query.numel() * query.element_size()
            scratch += [self.recorder.allocate(size, item) for _ in range(2)]
        return tuple(scratch)


def handle(tensor: torch.Tensor) -> int:
    """Return what tells storages apart."""
    return int(tensor.untyped_storage()._cdata)


def _tensors(tree: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor))
