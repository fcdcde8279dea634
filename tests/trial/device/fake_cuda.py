"""torch.cuda as far as `autotune.trial.device.cuda` uses it, over a card that is arithmetic."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

GIB = 2**30
Observer = Callable[[int, int, int, int], None]


@dataclass
class FakeCard:
    """A card and torch's allocator on it; bytes."""

    total: int = 80 * GIB
    outside: int = GIB
    reserved: int = 0
    cached: int = 0
    """Of `reserved`: free segments."""
    allowed: int | None = None
    retries: int = 0
    observer: Observer | None = None

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put it in the place of the real one."""
        cuda = {
            "set_device": lambda _device: None,
            "mem_get_info": lambda _device=None: (self.free, self.total),
            "memory_reserved": lambda _device=None: self.reserved,
            "max_memory_allocated": lambda _device=None: self.reserved - self.cached,
            "max_memory_reserved": lambda _device=None: self.reserved,
            "reset_peak_memory_stats": lambda _device=None: None,
            "memory_stats": lambda _device=None: {"num_alloc_retries": self.retries},
            "set_per_process_memory_fraction": self._allow,
            "empty_cache": self._empty_cache,
        }
        for name, stand_in in cuda.items():
            monkeypatch.setattr(torch.cuda, name, stand_in)
        monkeypatch.setattr(
            torch._C, "_cuda_attach_out_of_memory_observer", self._attach, raising=False
        )

    @property
    def free(self) -> int:
        """What the driver has left."""
        return self.total - self.outside - self.reserved

    def allocate(self, num_bytes: int) -> None:
        """Reserve a segment as the allocator does: give back the cache, then give up."""
        for last in (False, True):
            over = self.allowed is not None and self.reserved + num_bytes > self.allowed
            if not over and num_bytes <= self.free:
                self.reserved += num_bytes
                return
            if not last:
                self.retries += 1
                self._empty_cache()
        if self.observer:
            allowed = self.total if self.allowed is None else self.allowed
            self.observer(0, num_bytes, allowed, self.free)
        raise torch.OutOfMemoryError(
            f"CUDA out of memory. Tried to allocate {num_bytes / GIB:.2f} GiB. GPU 0 has ..."
        )

    def _allow(self, fraction: float, _device: object = None) -> None:
        self.allowed = int(fraction * self.total)

    def _empty_cache(self) -> None:
        self.reserved -= self.cached
        self.cached = 0

    def _attach(self, observer: Observer) -> None:
        self.observer = observer
