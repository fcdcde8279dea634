"""The specification of a trial, and the place of a rank."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from autotune.serialization import Serializable
from autotune.study.outcome import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRule:
    """When a trial stops; the first step is never counted."""

    min_steps: int = 4
    max_steps: int = 16
    max_s: float = 20.0
    """Seconds of counted steps after which no further one starts, once `min_steps` are done."""
    tight: float = 0.02
    """Stop when the interval of the mean step time is within this fraction of it, on either
    side."""
    slow_step_s: float | None = None
    """Stop as slow when even the fastest step takes longer than this, from the second on, or the
    first one alone much longer; None never does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulation:
    """One device emulates one rank of a world whose other ranks do not exist."""

    world_size: int
    local_world_size: int
    """Ranks on its node."""
    host_bytes: int
    """Host memory of such a rank: its share of the node's."""
    rank: int = 0
    """The emulated rank."""
    charged_bytes: int = 0
    """Device memory that a real rank needs and this one does not (NCCL's buffers): kept free under
    the ceiling, and not in reported numbers."""
    links: Mapping[str, Any] | None = None
    """The links between ranks (`autotune.predict.links.communication.Links`), which give the time
    of collectives. None: they take no time."""
    host_slowdown: float = 1.0
    """The factor by which an offloaded optimizer step is slower with all ranks of a node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSpec(Serializable):
    """One trial, the same for all its ranks."""

    program: ClassVar[str] = "trial"
    """The program of a preloaded parent's fork."""

    label: str
    """`trial-0007` or `confirm-2-winner`: the name of its logs."""
    hf_config: Mapping[str, Any]
    """The model, as a Hugging Face config with its `model_type`."""
    attn_implementation: str
    activation_checkpointing: bool
    seq_len: int
    precision: str
    ds_config: Mapping[str, Any]
    """The config that is run, shortened to `timed_accumulation`."""
    accumulation: int
    """Micro steps of the user's optimizer step."""
    timed_accumulation: int
    device_kind: str
    """cuda or cpu."""
    ceiling_bytes: int
    """The most memory that a rank may use on its device."""
    num_threads: int = 1
    """CPU threads of one rank."""
    seed: int = 0
    """Of the weights and the data."""
    same_weights: bool = False
    """Set every weight by its name and the seed, so that losses of two configs can be compared
    (`zero.Init` draws other weights than a plain build)."""
    steps: StepRule = field(default_factory=StepRule)
    hang_timeouts_s: Mapping[Phase, float]
    """Per phase: how long a rank may go without a progress mark before it counts as hung."""
    emulation: Emulation | None = None
    """None for as many real ranks as the job has."""

    @property
    def enforced_bytes(self) -> int:
        """The ceiling, less what the emulation reserves."""
        charged_bytes = self.emulation.charged_bytes if self.emulation else 0
        return max(self.ceiling_bytes - charged_bytes, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place(Serializable):
    """The place of one rank; the names are those of DeepSpeed's launcher."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    master_addr: str
    master_port: int
    """Of the rendezvous store; with 0 rank 0 opens it on a free port and reports the port."""
    visible_devices: str = ""
    """CUDA_VISIBLE_DEVICES: all of this trial's devices on the node, in local-rank order."""
    log_path: str = ""
    """On the rank's node."""

    def environment(self) -> dict[str, str]:
        """Return the variables that DeepSpeed's launcher would set."""
        variables = {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
            "LOCAL_SIZE": str(self.local_world_size),
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": str(self.master_port),
        }
        if self.visible_devices:
            variables["CUDA_VISIBLE_DEVICES"] = self.visible_devices
        return variables
