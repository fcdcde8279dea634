"""Why a rank failed, as far as the rank or its slot can tell."""

from enum import StrEnum


class FailureKind(StrEnum):
    """Kinds of a rank's failure; a trial's status follows from that of the first."""

    MEMORY = "memory"
    """The device's memory ran out."""
    HOST_MEMORY = "host memory"
    """The kernel ended the rank because host memory ran out."""
    INVALID = "invalid"
    """DeepSpeed refuses the config."""
    PEER = "peer"
    """Another rank is gone: a consequence, never the reason."""
    ERROR = "error"
    """Any other exception."""
    SIGNAL = "signal"
    """The process was ended from outside."""
    HUNG = "hung"
    """No progress mark within the phase's time-out."""
    STOPPED = "stopped"
    """Ended by us, because another rank failed."""
