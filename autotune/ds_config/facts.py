"""What determines whether a key of a ds_config acts: stage, offload, precision, ranks."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.ds_config.fields.table import field_of


class UnknownFactError(Exception):
    """The part of a config does not contain the fact; never leaves `autotune.ds_config`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A flattened ds_config, read as DeepSpeed reads it."""

    flat: Mapping[str, Any]
    """Dotted keys under their documented names."""
    world_size: int | None
    """Data-parallel ranks; None when not known."""
    partial: bool
    """Whether `flat` is a part of a config: a missing key is then unknown, while in a whole config
    it has DeepSpeed's default."""

    def value(self, key: str) -> Any:
        """Return a key's value, or DeepSpeed's default.

        Raises:
            UnknownFactError: the key is missing from a part of a config.
        """
        if key in self.flat:
            return self.flat[key]
        section = key.rpartition(".")[0]
        if self.flat.get(section, key) in (None, {}):
            # `"offload_param": null` and `{}` mean defaults for the whole section.
            return _default(key)
        if self.partial:
            raise UnknownFactError(key)
        return _default(key)

    def zero(self, key: str) -> Any:
        """Return a value of the `zero_optimization` section."""
        return self.value(f"zero_optimization.{key}")

    def has_section(self, section: str) -> bool:
        """Whether the config has a section.

        Raises:
            UnknownFactError: a part of a config does not show it.
        """
        if any(key.startswith(f"{section}.") for key in self.flat):
            return True
        if section in self.flat:
            return self.flat[section] is not None
        if self.partial:
            raise UnknownFactError(section)
        return False

    @property
    def stage(self) -> int:
        """The ZeRO stage.

        Raises:
            UnknownFactError: the config does not give a valid one.
        """
        stage = self.zero("stage")
        if stage not in (0, 1, 2, 3):
            raise UnknownFactError(stage)
        return int(stage)

    @property
    def optimizer_device(self) -> str:
        """Where the optimizer state is offloaded to: none, cpu or nvme."""
        return str(self.zero("offload_optimizer.device"))

    @property
    def param_device(self) -> str:
        """Where stage 3 offloads parameters to: none, cpu or nvme."""
        return str(self.zero("offload_param.device"))

    @property
    def swaps_optimizer(self) -> bool:
        """Whether the optimizer state is on nvme.

        Stages 1 and 2 only check whether the device is none, and treat nvme as cpu.
        """
        return self.stage == 3 and self.optimizer_device == "nvme"

    @property
    def swaps_params(self) -> bool:
        """Whether parameters are on nvme."""
        return self.stage == 3 and self.param_device == "nvme"

    @property
    def uses_bf16_optimizer(self) -> bool:
        """Whether stage 1 uses `BF16_Optimizer` instead of the ZeRO optimizer.

        See `runtime/engine.py: _do_optimizer_sanity_check`.
        """
        return (
            self.stage == 1
            and self.optimizer_device != "cpu"
            and bool(self.value("bf16.enabled"))
            and str(self.value("data_types.grad_accum_dtype")) in _FP32
        )


# runtime/config.py: DtypeEnum
_FP32 = ("fp32", "float32", "float", "torch.float32")


def _default(key: str) -> Any:
    field = field_of(key)
    return field.default if field else None
