"""Why a rank failed, as the rank or its slot reports it."""

from enum import StrEnum


class FailureKind(StrEnum):
    """Kinds of a rank's failure; the first one determines the trial's status."""

    MEMORY = "memory"
    """The ceiling was reached."""
    DEVICE_MEMORY = "device memory"
    """The device was full, below the ceiling."""
    HOST_MEMORY = "host memory"
    """Host memory ran out, or the kernel ended the rank because of it."""
    INVALID = "invalid"
    """DeepSpeed refuses the config."""
    PEER = "peer"
    """Another rank has ended: a consequence, never the reason."""
    DEVICE = "device"
    """CUDA or NCCL failed: an illegal access, a faulty card, a lost driver."""
    ERROR = "error"
    """Any other exception."""
    SIGNAL = "signal"
    """The process was ended from outside."""
    HUNG = "hung"
    """No progress mark within the phase's time-out."""
    STOPPED = "stopped"
    """Ended because another rank failed."""
