"""Every exception that autotune raises for something its user can fix.

::

    AutotuneError              exit code 2
    ├── JobError               options of a job that contradict each other, or its job file
    ├── WorkloadError          model, sequence length, batch or precision
    ├── NotJudgedError         memory is not judged: a fact is missing, or is not modelled
    ├── HardwareError          ceiling, device or pool: not what was asked for
    ├── SpaceError             a search space file
    ├── ConfigError            a ds_config
    ├── GateError              an option of the gate, or a file beside the ds_config
    ├── StoreError             a study: exists, belongs to another workload, cannot be opened
    ├── ExportError            a study has nothing to export yet
    └── DispatchError          exit code 3: the pool failed under way

A trial that fails is an `autotune.study.outcome.Outcome`, not an exception.
"""


class AutotuneError(Exception):
    """One or more faults, each a whole sentence: where, value, rule, suggestion.

    Args:
        faults: every fault found, so that a user fixes a file once and not once per fault.
    """

    exit_code = 2

    def __init__(self, *faults: str) -> None:
        if not faults:
            raise ValueError("an AutotuneError needs at least one fault")
        super().__init__("\n".join(faults))
        self.faults = faults


class JobError(AutotuneError):
    """The description of a job is wrong: an option, or a key of its job file."""


class NotJudgedError(AutotuneError):
    """Memory cannot be judged: a fact is missing, or the model has a part that is not modelled."""


class WorkloadError(AutotuneError):
    """The model, sequence length, batch, precision or world size cannot be trained."""


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
