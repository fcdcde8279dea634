"""A micro step as a list of visits: from one module's start to the next's.

Read from the same recorded program that the memory model replays, so that kernels, bytes, order and
recomputation have one source, for hand-written and traced families.
"""

import re
from dataclasses import dataclass, field
from functools import lru_cache

from autotune.job.device import Device
from autotune.predict.program.cache_keys import Remembered, by_program
from autotune.predict.program.events import (
    ALLOCATE,
    ENTER,
    FETCH,
    GRADIENT,
    RELEASE,
    Parameter,
    Program,
)
from autotune.predict.program.experts import expert_sizes
from autotune.predict.program.families import program
from autotune.predict.program.items import Part
from autotune.predict.throughput.kernels import ATTENTION_BACKWARD, attention_s, matmul_s
from autotune.predict.training_job import Training

_IN_A_LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks|block|layer)\.\d+\.")
_LEAST_COLUMNS = 16
"""Parameters with fewer times `hidden_size` elements are norms and biases."""


FORWARD_HOOKS = 4
"""Stage 3's Python around a module's forward: two hooks before it and two after it, of which two
apply an autograd function (`_register_deepspeed_module`)."""
BACKWARD_HOOKS = 2
"""The same around its backward: the two functions."""


@dataclass(slots=True)
class Visit:
    """What happens from the start of one module to that of the next."""

    fetched: tuple[int, ...]
    """The module's parameters."""
    product_s: float = 0.0
    """Matrix products and attention, at the device's best rate."""
    traffic_bytes: int = 0
    """Bytes of the tensors that it makes."""
    num_kernels: int = 0
    num_hooks: int = FORWARD_HOOKS
    """Python calls of stage 3 around the module."""
    num_recomputed: int = 0
    """Checkpointed layers that run again here."""
    gradients: list[int] = field(default_factory=list)
    """Parameters whose gradients are ready."""
    released: list[tuple[int, ...]] = field(default_factory=list)
    """Parameters of modules that end."""


@dataclass(frozen=True, slots=True)
class Visits:
    """One micro step."""

    parameters: tuple[Parameter, ...]
    visits: tuple[Visit, ...]


def list_visits(training: Training, device: Device) -> Visits:
    """Return a micro step's visits; about a hundred are cached."""
    return _list_visits(by_program(training), device)


@lru_cache(maxsize=128)
def _list_visits(key: Remembered, device: Device) -> Visits:
    recorded = program(key.training)
    pricer = _Pricer(key.training, recorded, device)
    pricer.run(recorded)
    return Visits(parameters=recorded.parameters, visits=tuple(pricer.visits))


class _Pricer:
    """Prices a program's events."""

    def __init__(self, training: Training, recorded: Program, device: Device) -> None:
        self.training, self.device = training, device
        self.product_s = [self._product_s(parameter) for parameter in recorded.parameters]
        self.gradient_s = [
            self._product_s(parameter, gradient=True) for parameter in recorded.parameters
        ]
        self.in_layers = {
            index
            for index, parameter in enumerate(recorded.parameters)
            if _IN_A_LAYER.search(parameter.name)
        }
        self.visits: list[Visit] = []
        self.visit = Visit(fetched=())
        self.num_hooks = FORWARD_HOOKS
        self.place: tuple[Part, str] = (Part.FORWARD, "embedding")
        self.with_gradient: set[int] = set()
        self.attention_s = self._attention_s()

    def run(self, recorded: Program) -> None:
        """Price the whole micro step."""
        for kind, first, second, _ in recorded.events:
            if kind == ALLOCATE:
                self.visit.traffic_bytes += second
                self.visit.num_kernels += 1
            elif kind == FETCH:
                self.visit = Visit(fetched=first, num_hooks=self.num_hooks)
                self.visits.append(self.visit)
            elif kind == RELEASE:
                self._release(first)
            elif kind == GRADIENT:
                # A checkpointed layer repeats its earlier work.
                self.num_hooks = self.visit.num_hooks = BACKWARD_HOOKS
                self.with_gradient.add(first)
                self.visit.gradients.append(first)
            elif kind == ENTER:
                self._enter(first, second)

    def _release(self, parameters: tuple[int, ...]) -> None:
        """A module has ended: forward is one product, backward with a gradient two."""
        self.visit.released.append(parameters)
        # A tied head's gradient waits for the table's.
        trained = bool(self.with_gradient.intersection(parameters)) or self._in_head()
        self.with_gradient.difference_update(parameters)
        for parameter in parameters:
            if self._multiplies(parameter):
                # The input's gradient costs as much as forward.
                self.visit.product_s += self.product_s[parameter]
                self.visit.product_s += self.gradient_s[parameter] if trained else 0.0

    def _in_head(self) -> bool:
        return self.place == (Part.BACKWARD, "head")

    def _multiplies(self, parameter: int) -> bool:
        """Whether a parameter is multiplied here: tables are looked up, except as heads."""
        if not self.product_s[parameter]:
            return False
        part, detail = self.place
        return parameter in self.in_layers or part is Part.LOSS or detail == "head"

    def _product_s(self, parameter: Parameter, *, gradient: bool = False) -> float:
        """Return the seconds of one product of the micro step's tokens with a matrix.

        Args:
            parameter: the matrix.
            gradient: whether it is the product of its gradient, with the tokens as inner dimension.
        """
        training, hidden = self.training, self.training.model.hidden_size
        rows, columns, number = training.tokens, parameter.num_elements // hidden, 1
        sizes = expert_sizes(training.model) if parameter.expert else None
        if sizes is not None:
            # Each expert gets its share of the tokens; other ranks' experts run there.
            number = max(sizes.num_experts // training.expert_parallel_size, 1)
            columns //= sizes.num_experts
            rows = max(rows * sizes.per_token // sizes.num_experts, 1)
            rows *= training.expert_parallel_size
        if columns < _LEAST_COLUMNS:
            return 0.0
        shape = (columns, rows, hidden) if gradient else (rows, hidden, columns)
        one = matmul_s(shape, self.device, precision=training.precision)
        return number * one

    def _attention_s(self) -> float:
        """Return the seconds of one layer's forward; fused kernels skip masked positions."""
        training, shape = self.training, self.training.model
        fused = training.attn_implementation != "eager"
        scores = training.tokens * training.seq_len * shape.attention_width
        return attention_s(
            (2 if fused else 4) * scores,
            self.device,
            seq_len=training.seq_len,
            precision=training.precision,
            implementation=training.attn_implementation,
        )

    def _enter(self, part: Part, detail: str) -> None:
        """Start a part; a new layer adds its attention."""
        place = (part, detail)
        if place == self.place:
            return
        self.place = place
        again = int(self.training.activation_checkpointing and detail.startswith("layer"))
        is_forward = part is Part.FORWARD or again
        self.num_hooks = FORWARD_HOOKS if is_forward else BACKWARD_HOOKS
        if not detail.startswith("layer"):
            return
        times = 1.0
        if part is Part.BACKWARD:
            times = ATTENTION_BACKWARD + again
            self.visit.num_recomputed += again
        self.visit.product_s += times * self.attention_s
