"""A micro step on four clocks: the launching host, the device, the wire, and the drive.

The host runs ahead until the device is busy; the device waits for the host where kernels are small,
and for the wire where a gather is late. Collectives queue on one wire, as on NCCL's stream;
offloaded shards queue for the drive and the bus before they are gathered.
"""

from dataclasses import dataclass

from autotune.predict.links.communication import Group
from autotune.predict.throughput.constants import Rates
from autotune.predict.throughput.gather_plan import GatherPlan, plan_gathers
from autotune.predict.throughput.kernels import COPY_SHARE, KERNEL_S
from autotune.predict.throughput.module_visits import BACKWARD_HOOKS, FORWARD_HOOKS, Visits
from autotune.predict.throughput.nvme_weights import share_on_drive
from autotune.predict.throughput.surroundings import SpeedSurroundings
from autotune.predict.training_job import Training

_INT4_BYTES = 0.5
GRADIENT_LAUNCHES = 4
"""Below stage 3, per gradient: its hook, the copy into the bucket, the check of its size."""
_GRADIENT_PASSES = 4
"""Passes over a gradient on the device: copied into its bucket and divided, read and written
each."""
_ADD_PASSES = 3
"""Below stage 2 autograd adds to the gradient of earlier micro steps: two reads, one write."""
_HOOKS = (FORWARD_HOOKS + BACKWARD_HOOKS) / 2
_FP32_BYTES = 4
NCCL_CALL_S = 51.5e-6
"""Host time of torch's and NCCL's call of a collective: 33 to 69 us on two hosts of H200s
(`tests/benchmarks/collective_call.py`)."""


@dataclass(slots=True)
class Spans:
    """The seconds of a micro step, itemised; they add up to its length."""

    compute: float = 0.0
    launches: float = 0.0
    """The device waits for the host."""
    communication: float = 0.0
    """The device waits for the wire, or is slowed by overlapping collectives."""
    sent: float = 0.0
    """How long the wire is busy; not part of the length."""

    @property
    def length_s(self) -> float:
        """The micro step, from start to end."""
        return self.compute + self.launches + self.communication


class Timeline:
    """Runs visits on the clocks.

    Args:
        training: the job.
        surroundings: what it runs on.
        visits: the micro step.
        rates: the constants.
        boundary: whether it is the last of an optimizer step.
    """

    def __init__(
        self,
        training: Training,
        surroundings: SpeedSurroundings,
        visits: Visits,
        *,
        rates: Rates,
        boundary: bool,
    ) -> None:
        self.training, self.zero = training, training.zero
        self.surroundings, self.visits, self.rates = surroundings, visits, rates
        self.sharded = training.zero.stage == 3
        self.boundary = boundary
        self.reduces = training.zero.stage > 1 or (training.zero.stage == 1 and boundary)
        self.ranks = training.world_size
        self.group = surroundings.group(training)
        hpz = min(training.zero.hpz_partition_size, training.world_size)
        self.secondary_group = surroundings.group_of(hpz) if hpz > 1 else None
        self.host = self.device = self.wire = self.loaded = 0.0
        self.drive_share = share_on_drive(training)
        self.spans = Spans()
        self.bucket_elements = 0
        self.reduced_at = 0.0
        self.arrivals: dict[int, float] = {}
        gathers = self.sharded and training.world_size > 1
        self.plan = plan_gathers(training, visits) if gathers else None

    def run(self) -> Spans:
        """Run the micro step."""
        rates, launch_s = self.rates, self.rates.launch_s
        byte_s = rates.traffic / self.surroundings.device.memory_bytes_per_s
        for index, visit in enumerate(self.visits.visits):
            began = self.host
            ready = self._fetch(self.plan, index) if self.plan is not None else 0.0
            if self.sharded:
                self.host += visit.num_hooks / _HOOKS * rates.hook_s
            self.host += visit.num_kernels * launch_s + visit.num_recomputed * rates.checkpoint_s
            device_s = (
                visit.product_s / rates.matmul
                + visit.traffic_bytes * byte_s
                + visit.num_kernels * KERNEL_S
            )
            self._compute(device_s, began_s=began, ready_s=ready)
            for parameter in visit.gradients:
                self._gradient(parameter)
        self._flush()
        if self.reduces:
            self._wait_for_wire(self.reduced_at)
        self._wait_for_host(self.host)
        hidden = max(self.spans.sent - self.spans.communication, 0.0)
        self.spans.communication += rates.contention * hidden
        return self.spans

    # ------------------------------------------------------------------ the device
    def _compute(self, seconds: float, *, began_s: float, ready_s: float) -> None:
        """Run a module's kernels, after the host launches them and after weights arrive."""
        self._wait_for_wire(ready_s)
        self._wait_for_host(began_s)
        self._run(seconds)
        # The last kernel cannot have run before it was launched.
        self._wait_for_host(self.host)

    def _run(self, seconds: float) -> None:
        self.device += seconds
        self.spans.compute += seconds

    def _copy(self, num_bytes: float) -> None:
        """Run kernels that only read and write."""
        self._run(num_bytes / (COPY_SHARE * self.surroundings.device.memory_bytes_per_s))

    @property
    def _share_that_adds(self) -> float:
        """Return the fraction of the represented micro steps that are not a step's first."""
        repeats = self.training.accumulation - 1
        if self.boundary:
            return 1.0 if repeats else 0.0
        return (repeats - 1) / repeats

    def _wait_for_host(self, until_s: float) -> None:
        if until_s > self.device:
            self.spans.launches += until_s - self.device
            self.device = until_s

    def _wait_for_wire(self, until_s: float) -> None:
        # A wait for the host at the same time does not count as a wait for the wire.
        self._wait_for_host(min(self.host, until_s))
        if until_s > self.device:
            self.spans.communication += until_s - self.device
            self.device = until_s

    def _send(self, kind: str, num_bytes: float, *, group: Group, after_s: float) -> float:
        """Queue a collective; returns when it has ended."""
        seconds = self.surroundings.collective_s(kind, num_bytes, group)
        self.host += self.rates.call_s
        if seconds:
            # The host is busy until NCCL has the call.
            self.host += NCCL_CALL_S * self.surroundings.host_slowness
        self.spans.sent += seconds
        self.wire = max(self.wire, after_s) + seconds
        return self.wire

    # ------------------------------------------------------------------ stage 3's weights
    def _fetch(self, plan: GatherPlan, index: int) -> float:
        """Start a module's gathers; returns when its own weights have arrived."""
        fetch = plan.fetches[index]
        for number in fetch.demanded:
            self._gather(plan, number)
            # Nothing overlaps with it: all ranks wait here, and no host runs ahead.
            self.host = max(self.host, self.arrivals[number])
        ready = max((self.arrivals[number] for number in fetch.awaited), default=0.0)
        for number in fetch.prefetched:
            self._gather(plan, number)
        return ready

    def _gather(self, plan: GatherPlan, number: int) -> None:
        gather, training = plan.gathers[number], self.training
        whole_bytes = training.element_bytes * gather.num_elements
        group = self.secondary_group if gather.again and self.secondary_group else self.group
        self.host += gather.num_tensors * self.rates.hook_s
        if gather.coalesced:
            self.host += gather.num_tensors * group.ranks * self.rates.piece_s
        element_bytes = 1 if self.zero.quantized_weights else training.element_bytes
        after = self.host if self.zero.overlap_comm else max(self.host, self.device)
        self.loaded = max(self.loaded, after) + self._load_s(whole_bytes / self.ranks)
        copied_s = 2 * whole_bytes / self.surroundings.device.memory_bytes_per_s
        num_bytes = element_bytes * gather.num_elements
        arrived = self._send("all_gather", num_bytes, group=group, after_s=max(after, self.loaded))
        self.arrivals[number] = arrived + (copied_s if gather.coalesced else 0.0)

    def _load_s(self, shard_bytes: float) -> float:
        """Return the seconds to load an offloaded shard to the device."""
        if not self.zero.offload_param.enabled:
            return 0.0
        read_s = self.drive_share * shard_bytes / self.surroundings.drive_bytes_per_s(self.training)
        return read_s + shard_bytes / self.surroundings.to_host_bytes_per_s(self.training)

    # ------------------------------------------------------------------ gradients
    def _gradient(self, parameter: int) -> None:
        """A gradient enters the bucket; a full bucket is reduced."""
        elements = self.visits.parameters[parameter].num_elements
        num_bytes = self.training.element_bytes * elements
        if self.zero.stage < 2:
            self._copy(_ADD_PASSES * self._share_that_adds * num_bytes)
        if not self.reduces:
            return
        if self.sharded:
            self.host += self.rates.hook_s + self.ranks * self.rates.piece_s
        else:
            self.host += GRADIENT_LAUNCHES * self.rates.launch_s
        self._copy(_GRADIENT_PASSES * num_bytes)
        if self.bucket_elements + elements > self.zero.reduce_bucket_size:
            self._flush()
        self.bucket_elements += elements

    def _flush(self) -> None:
        """Reduce the bucket; below stage 3 DeepSpeed reduces all of it on every rank."""
        elements, self.bucket_elements = self.bucket_elements, 0
        if not elements:
            return
        kind = "reduce_scatter" if self.sharded and self.zero.reduce_scatter else "all_reduce"
        if self.zero.overlap_comm:
            # The previous bucket must be done: there are two.
            self._wait_for_wire(self.reduced_at)
        num_bytes = float(self.training.communication_bytes * elements)
        if self.sharded and self.zero.quantized_gradients:
            num_bytes *= _INT4_BYTES / self.training.communication_bytes
        reduced = self._send(kind, num_bytes, group=self.group, after_s=max(self.device, self.host))
        # On the same stream: the next reduction waits for the copies.
        self.reduced_at = self.wire = reduced + self._to_host_s(elements / self.ranks)
        if not self.zero.overlap_comm:
            self._wait_for_wire(self.reduced_at)

    def _to_host_s(self, shard: float) -> float:
        """Return the seconds to move a shard's gradients to an offloaded optimizer.

        With accumulation they are kept in host memory, and copied back to the device for each
        addition: at stage 3 after the first micro step too. They are cast to fp32 last.

        Args:
            shard: elements.
        """
        offload = self.zero.offload_optimizer
        if not offload.enabled:
            return 0.0
        if self.sharded:
            ways = 2.0
        elif self.boundary:
            ways = 2 * self._share_that_adds
        else:
            ways = 1 + self._share_that_adds
        num_bytes = ways * self.training.element_bytes + (_FP32_BYTES if self.boundary else 0)
        link = self.surroundings.to_host_bytes_per_s(self.training)
        return offload.ratio * num_bytes * shard / link
