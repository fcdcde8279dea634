"""Every exception that autotune raises for something its user can mend.

::

    AutotuneError              exit code 2
    ├── WorkloadError          model, sequence length, batch or precision
    ├── NotJudgedError         what memory depends on is not known, or not modelled
    ├── HardwareError          ceiling, device or pool: not what was asked for
    ├── SpaceError             a search space file
    ├── ConfigError            a ds_config
    ├── GateError              what the gate was told beside the ds_config: options, files
    ├── StoreError             a study: exists, belongs to another workload, cannot be opened
    ├── ExportError            a study has nothing to export yet
    └── DispatchError          exit code 3: the pool failed under way

A trial that fails is an `autotune.study.outcome.Outcome`, not an exception.
"""


class AutotuneError(Exception):
    """One or more faults, each a whole sentence: where, value, rule, way out.

    Args:
        faults: every fault found, so that a user mends a file once and not once per fault.
    """

    exit_code = 2

    def __init__(self, *faults: str) -> None:
        if not faults:
            raise ValueError("an AutotuneError needs at least one fault")
        super().__init__("\n".join(faults))
        self.faults = faults


class WorkloadError(AutotuneError):
    """The model, sequence length, batch, precision or world size cannot be trained."""


class NotJudgedError(AutotuneError):
    """Memory depends on what is not known or not modelled: the answer is neither yes nor no."""


class HardwareError(AutotuneError):
    """The devices, memory or ceiling asked for are not there."""


class SpaceError(AutotuneError):
    """A search space file is wrong."""


class ConfigError(AutotuneError):
    """A ds_config cannot be read, or DeepSpeed refuses it."""


class GateError(AutotuneError):
    """An option of the gate, or a file beside the ds_config, is wrong."""


class StoreError(AutotuneError):
    """A study cannot be created, opened or resumed."""


class ExportError(AutotuneError):
    """A study holds nothing that could be exported."""


class DispatchError(AutotuneError):
    """The pool failed, not a trial."""

    exit_code = 3
