"""The interface of DeepSpeed's engines: what they do with a rank's tensors."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from autotune.predict.memory.allocator import Block, CachingAllocator
from autotune.predict.program.events import Parameter
from autotune.predict.program.items import Item, Part
from autotune.predict.training_job import Training

FP64 = 8
"""Gradient norms accumulate in fp64 (`get_norm_dtype` in deepspeed/runtime/zero/utils.py)."""


class Engine(ABC):
    """Holds weights, gradients and optimizer states of one rank, as one ZeRO stage does.

    Args:
        training: the job.
        parameters: the model's, as the model registers them.
        allocator: where this rank's bytes are counted.
        rank: the rank; all need the same memory except at stage 2 (`peak_rank.py`).
    """

    def __init__(
        self,
        training: Training,
        parameters: Sequence[Parameter],
        allocator: CachingAllocator,
        *,
        rank: int = 0,
    ) -> None:
        self.training = training
        self.rank = rank
        self.zero = training.zero
        self.allocator = allocator
        self.parameters = parameters
        self.element_bytes = training.element_bytes
        self.elements = [
            -(-p.num_elements // training.expert_parallel_size) if p.expert else p.num_elements
            for p in parameters
        ]
        """Of each parameter on this rank before sharding."""
        self.trainable = [k for k, p in enumerate(parameters) if p.trainable]
        self.boundary = True
        """Whether this micro step ends the optimizer step."""
        self.moments: list[Block] = []

    @abstractmethod
    def initialize(self) -> None:
        """`deepspeed.initialize`: build the model, shard it, make the master weights."""

    @abstractmethod
    def gradient(self, parameter: int, block: Block) -> None:
        """Autograd has accumulated a gradient: the hook of `parameter` runs."""

    @abstractmethod
    def end_backward(self) -> None:
        """The backward of a micro step has ended; gradients are reduced if necessary."""

    @abstractmethod
    def step(self) -> None:
        """Norms, the optimizer's update, and the weights written back."""

    def start_pass(self) -> None:  # noqa: B027  only stage 3 has something to do
        """A forward starts."""

    def fetch(self, parameters: tuple[int, ...]) -> None:  # noqa: B027
        """A module needs its parameters."""

    def release(self, parameters: tuple[int, ...]) -> None:  # noqa: B027
        """A module has ended."""

    def make_moments(self, elements: int) -> None:
        """Allocate the optimizer's state tensors for one flat master tensor."""
        training = self.training
        self.moments.extend(
            self.allocator.allocate(training.moment_bytes * elements, Item.MOMENTS)
            for _ in range(training.num_moments)
        )

    def optimizer_scratch(self, elements: int) -> None:
        """Count what torch's own optimizers need: they loop over whole tensors."""
        if self.training.foreach_optimizer:
            self.transient(self.training.moment_bytes * elements, Item.STEP_GRADIENTS)

    def transient(self, num_bytes: int, item: Item, stream: int = 0) -> None:
        """Allocate and free at once."""
        if num_bytes:
            self.allocator.free(self.allocator.allocate(num_bytes, item, stream))

    def enter_step(self) -> None:
        """The optimizer step starts."""
        self.allocator.enter(Part.STEP)
