"""A `torch.distributed` backend: one process emulates one rank of N with timed collectives.

Results are those of ranks that all hold what this one holds: sums keep this rank's part, gathers
repeat this rank's shard. Sizes, memory and magnitudes are realistic; the trained weights are not.

Method names differ between versions of torch: up to 2.11 `_allgather_base` and
`_reduce_scatter_base`, from 2.13 `all_gather_single` and `reduce_scatter_single`.
"""

# The argument names differ from torch's stubs, which vary between versions.
# mypy: disable-error-code="override, assignment"

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

from autotune.trial.timed_group.fill import Copies, Fill, kept, repeated
from autotune.trial.timed_group.waiting import CudaWaiting, Handle, HostWaiting, Waiting

BACKEND = "timed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One call: what its time depends on."""

    kind: str
    """all_gather, reduce_scatter, all_reduce, all_to_all, broadcast, reduce, gather or scatter."""
    num_bytes: int
    """Of the whole: an all-gather's output, a reduce-scatter's input, an all-reduce's tensor."""
    ranks: tuple[int, ...]
    """The group's, as ranks of the whole job."""


CollectiveTime = Callable[[Collective], float]
"""Returns the seconds of a collective; called once for each kind and size."""


class TimedWork(Work):
    """A running collective. Keeps references to its tensors until a wait, as NCCL's work does."""

    def __init__(self, handle: Handle, tensors: Any) -> None:
        super().__init__()
        self._handle = handle
        self._tensors = tensors

    def wait(self, timeout: Any = None) -> bool:
        """Make the current stream wait; the host continues."""
        del timeout
        self._handle.wait()
        self._tensors = None
        return True

    def synchronize(self) -> None:
        """Same as `wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Return whether the collective's time has passed."""
        return self._handle.is_done()

    def is_success(self) -> bool:
        """Return True: nothing is sent, so nothing can fail."""
        return True


class TimedGroup(dist.ProcessGroup):
    """One rank of a group; see the module."""

    def __init__(
        self, rank: int, size: int, *, ranks: tuple[int, ...], collective_s: CollectiveTime
    ) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._ranks = ranks
        self._collective_s = collective_s
        self._known_s: dict[tuple[str, int], float] = {}
        self._waiting: dict[torch.device, Waiting] = {}
        self._coalesced: list[TimedWork] | None = None

    def getBackendName(self) -> str:  # noqa: N802  torch's name
        """Return the name it is registered under."""
        return BACKEND

    def __repr__(self) -> str:
        return f"TimedGroup(rank={self.rank()}, size={self.size()})"

    # One tensor from or for each rank, in one buffer.

    def all_gather_single(self, output: torch.Tensor, shard: torch.Tensor, opts: Any = None) -> Any:
        """Repeat this rank's shard."""
        return self._run("all_gather", output, self._repeated(output, shard), opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(
        self, outputs: Sequence[torch.Tensor], shards: Sequence[torch.Tensor], opts: Any = None
    ) -> Any:
        """Repeat this rank's shards; one collective, like NCCL's group call."""

        def fill() -> None:
            for output, shard in zip(outputs, shards, strict=True):
                self._repeated(output, shard)()

        return self._run("all_gather", outputs, fill, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter_single(
        self, shard: torch.Tensor, whole: torch.Tensor, opts: Any = None
    ) -> Any:
        """Keep this rank's part of its tensor."""
        return self._run("reduce_scatter", whole, self._kept(shard, whole), opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(
        self, shards: Sequence[torch.Tensor], wholes: Sequence[torch.Tensor], opts: Any = None
    ) -> Any:
        """Keep this rank's part of each of its tensors."""

        def fill() -> None:
            for shard, whole in zip(shards, wholes, strict=True):
                self._kept(shard, whole)()

        return self._run("reduce_scatter", wholes, fill, opts)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def all_to_all_single(  # noqa: PLR0917  torch's order
        self,
        output: torch.Tensor,
        whole: torch.Tensor,
        output_split_sizes: Sequence[int] = (),
        input_split_sizes: Sequence[int] = (),
        opts: Any = None,
    ) -> Any:
        """Return this rank's tensor."""
        del output_split_sizes, input_split_sizes
        return self._run("all_to_all", whole, partial(_copy_flat, output, whole), opts)

    alltoall_base = all_to_all_single

    # Lists of tensors.

    def allgather(
        self,
        outputs: Sequence[Sequence[torch.Tensor]],
        shards: Sequence[torch.Tensor],
        opts: Any = None,
    ) -> Any:
        """Repeat this rank's tensor."""

        def fill() -> None:
            for tensors, shard in zip(outputs, shards, strict=True):
                for tensor in tensors:
                    tensor.copy_(shard)

        return self._run("all_gather", [t for tensors in outputs for t in tensors], fill, opts)

    def reduce_scatter(
        self,
        shards: Sequence[torch.Tensor],
        wholes: Sequence[Sequence[torch.Tensor]],
        opts: Any = None,
    ) -> Any:
        """Keep this rank's tensor of the list."""

        def fill() -> None:
            for shard, tensors in zip(shards, wholes, strict=True):
                shard.copy_(tensors[self.rank()])

        return self._run("reduce_scatter", [t for ts in wholes for t in ts], fill, opts)

    def alltoall(
        self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], opts: Any = None
    ) -> Any:
        """Return this rank's tensors."""

        def fill() -> None:
            for output, tensor in zip(outputs, inputs, strict=True):
                _copy_flat(output, tensor)

        return self._run("all_to_all", inputs, fill, opts)

    def allreduce(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        """Keep this rank's numbers."""
        return self._run("all_reduce", tensors, None, opts)

    allreduce_coalesced = allreduce

    def reduce(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        """Keep this rank's numbers."""
        return self._run("reduce", tensors, None, opts)

    def broadcast(self, tensors: Sequence[torch.Tensor], opts: Any = None) -> Any:
        """Keep this rank's numbers."""
        return self._run("broadcast", tensors, None, opts)

    def gather(
        self,
        outputs: Sequence[Sequence[torch.Tensor]],
        tensors: Sequence[torch.Tensor],
        opts: Any = None,
    ) -> Any:
        """Repeat this rank's tensor, if it is the one that gathers."""

        def fill() -> None:
            for gathered in outputs:
                for output in gathered:
                    output.copy_(tensors[0])

        return self._run("gather", tensors, fill, opts)

    def scatter(
        self,
        outputs: Sequence[torch.Tensor],
        tensors: Sequence[Sequence[torch.Tensor]],
        opts: Any = None,
    ) -> Any:
        """Keep this rank's tensor, if it is the one that scatters."""

        def fill() -> None:
            for output, given in zip(outputs, tensors, strict=False):
                output.copy_(given[self.rank()])

        return self._run("scatter", outputs, fill, opts)

    def barrier(self, opts: Any = None) -> Any:
        """Return at once: all ranks are always here."""
        del opts
        return TimedWork(_Done(), None)

    def monitored_barrier(self, *_: Any, **__: Any) -> None:
        """Return at once."""

    # The older form of coalescing: calls between the two are one collective.

    def _start_coalescing(self, device: torch.device) -> None:
        del device
        self._coalesced = []

    def _end_coalescing(self, device: torch.device) -> Any:
        del device
        works, self._coalesced = self._coalesced or [], None
        # They run in order on one stream: waiting for the last one waits for all.
        return works[-1] if works else TimedWork(_Done(), None)

    def _repeated(self, output: torch.Tensor, shard: torch.Tensor) -> Copies:
        return repeated(output, shard, rank=self.rank(), ranks=self.size())

    def _kept(self, shard: torch.Tensor, whole: torch.Tensor) -> Copies:
        return kept(shard, whole, rank=self.rank())

    def _run(
        self, kind: str, tensors: torch.Tensor | Sequence[torch.Tensor], fill: Fill, opts: Any
    ) -> Any:
        given = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        if not given:
            return TimedWork(_Done(), None)
        num_bytes = sum(tensor.numel() * tensor.element_size() for tensor in given)
        # Older torch does not pass it; DeepSpeed's asynchronous collectives then use a stream too.
        is_async = self._coalesced is not None or bool(getattr(opts, "asyncOp", True))
        with torch.no_grad():
            handle = self._waiting_on(given[0].device).run(
                self._seconds(kind, num_bytes), fill, is_async=is_async
            )
        work = TimedWork(handle, (given, fill))
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _seconds(self, kind: str, num_bytes: int) -> float:
        """Return the seconds of a collective. Cached: NCCL's call is short, so this must be too."""
        known = self._known_s.get((kind, num_bytes))
        if known is None:
            known = self._collective_s(
                Collective(kind=kind, num_bytes=num_bytes, ranks=self._ranks)
            )
            self._known_s[kind, num_bytes] = known
        return known

    def _waiting_on(self, device: torch.device) -> Waiting:
        if device not in self._waiting:
            self._waiting[device] = CudaWaiting(device) if device.type == "cuda" else HostWaiting()
        return self._waiting[device]


class _Done:
    def wait(self) -> None:
        pass

    def is_done(self) -> bool:
        return True


def register(collective_s: CollectiveTime) -> None:
    """Register the backend with `torch.distributed`; groups created afterwards use these times."""

    def create(common: Any, _: Any) -> TimedGroup:
        ranks = tuple(common.global_ranks_in_group) or tuple(range(common.group_size))
        return TimedGroup(
            common.group_rank, common.group_size, ranks=ranks, collective_s=collective_s
        )

    dist.Backend.register_backend(BACKEND, create, extended_api=True, devices=["cpu", "cuda"])


def _copy_flat(output: torch.Tensor, given: torch.Tensor) -> None:
    size = min(output.numel(), given.numel())
    output.view(-1)[:size].copy_(given.reshape(-1)[:size])
