"""Why a rank failed, as far as the rank or its slot can tell."""

from enum import StrEnum


class FailureKind(StrEnum):
    """Kinds of a rank's failure; a trial's status follows from that of the first."""

    MEMORY = "memory"
    """The ceiling was reached."""
    DEVICE_MEMORY = "device memory"
    """The device itself was full, below the ceiling."""
    HOST_MEMORY = "host memory"
    """Host memory ran out, or the kernel ended the rank because of it."""
    INVALID = "invalid"
    """DeepSpeed refuses the config."""
    PEER = "peer"
    """Another rank is gone: a consequence, never the reason."""
    DEVICE = "device"
    """CUDA or NCCL failed: an illegal access, a broken card, a driver that is gone."""
    ERROR = "error"
    """Any other exception."""
    SIGNAL = "signal"
    """The process was ended from outside."""
    HUNG = "hung"
    """No progress mark within the phase's time-out."""
    STOPPED = "stopped"
    """Ended by us, because another rank failed."""
