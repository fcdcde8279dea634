"""All init faults."""

from tests.lint.rules import init_faults_other as other
from tests.lint.rules import init_faults_zero as zero

FAULTS = (
    *zero.PRECISION,
    *zero.AUTOCAST,
    *zero.ZERO,
    *zero.OFFLOAD,
    *other.COMMUNICATION,
    *other.PARALLEL,
    *other.EXPERT,
    *other.OPTIMIZER,
    *other.SCHEDULER,
    *other.OTHER,
)
