"""The options that choose an evaluator, checked without a pool. Loads no Ray."""

from dataclasses import dataclass

from autotune.errors import HardwareError
from autotune.evaluate.evaluator_kind import EvaluatorKind
from autotune.job.site import DEFAULT_GPUS_PER_NODE

AUTO = "auto"
_CHOICES = (AUTO, EvaluatorKind.MEASURED, EvaluatorKind.EMULATED, EvaluatorKind.MODELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorOptions:
    """`--evaluator`, `--gpus`, `--gpus-per-node` and `--gpu-type`."""

    evaluator: str
    gpus: int
    gpus_per_node: int | None
    """None is all, at most 8."""
    gpu_type: str | None = None
    """Of a modelled study, which has no device to read it from."""

    @property
    def runs_nothing(self) -> bool:
        """Whether everything is predicted."""
        return self.evaluator == EvaluatorKind.MODELLED

    @property
    def may_emulate(self) -> bool:
        """Whether ranks may be emulated."""
        return self.evaluator in (AUTO, EvaluatorKind.EMULATED)

    def check(self) -> None:
        """Check the options, as far as no pool is needed.

        Raises:
            HardwareError: an unknown evaluator, or options that exclude each other.
        """
        if self.evaluator not in _CHOICES:
            raise HardwareError(
                f"--evaluator {self.evaluator}: must be {', '.join(_CHOICES[:-1])} or "
                f"{_CHOICES[-1]}"
            )
        given = self.gpus_per_node
        if given is not None and (given > self.gpus or self.gpus % given):
            raise HardwareError(
                f"--gpus-per-node {given}: {self.gpus} ranks do not divide into nodes of {given}; "
                "use a divisor of --gpus"
            )
        if self.evaluator == EvaluatorKind.MEASURED:
            self._refuse_gpus_per_node()
        if self.evaluator == EvaluatorKind.MODELLED and self.gpu_type is None:
            raise HardwareError(
                "--evaluator modelled: nothing runs, so the device is not known; name one with "
                "--gpu-type, such as h100-80gb"
            )
        if self.evaluator != EvaluatorKind.MODELLED and self.gpu_type is not None:
            raise HardwareError(
                f"--gpu-type {self.gpu_type}: is for --evaluator modelled; trials run on the "
                "devices of the pool, so leave it out"
            )

    def gpus_per_node_of(self, evaluator: str) -> int | None:
        """Return the ranks of an emulated or modelled node; None where ranks are real.

        Raises:
            HardwareError: `--gpus-per-node` was given, and the ranks are real.
        """
        if evaluator not in (EvaluatorKind.EMULATED, EvaluatorKind.MODELLED):
            self._refuse_gpus_per_node()
            return None
        return self.gpus_per_node or min(self.gpus, DEFAULT_GPUS_PER_NODE)

    def _refuse_gpus_per_node(self) -> None:
        if self.gpus_per_node is not None:
            raise HardwareError(
                f"--gpus-per-node {self.gpus_per_node}: is for emulated ranks; real ranks run "
                "where their devices are, so leave it out, or use --evaluator emulated"
            )
