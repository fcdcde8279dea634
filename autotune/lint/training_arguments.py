"""The values that Hugging Face TrainingArguments require in a ds_config.

Source: transformers 5.24, integrations/deepspeed.py: `trainer_config_process` and
`trainer_config_finalize`, and the defaults of training_args.py.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_DEFAULTS: Mapping[str, Any] = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "max_grad_norm": 1.0,
    "learning_rate": 5e-5,
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "weight_decay": 0.0,
    "warmup_steps": 0,
    "fp16": False,
    "fp16_full_eval": False,
    "bf16": False,
    "bf16_full_eval": False,
}
_COMPLETE = "output_dir"
"""An argument that every complete file of arguments sets."""
_SAME = {
    "train_micro_batch_size_per_gpu": "per_device_train_batch_size",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "max_grad_norm",
    "optimizer.params.lr": "learning_rate",
    "optimizer.params.eps": "adam_epsilon",
    "optimizer.params.weight_decay": "weight_decay",
    "scheduler.params.warmup_max_lr": "learning_rate",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The value that transformers expects in a key."""

    key: str
    value: Any
    argument: str
    """The argument that the value comes from, or the formula."""


class TrainingArguments:
    """TrainingArguments as far as they are known.

    Args:
        given: the arguments in the user's file.
        ranks: devices of the whole job; None if not known.
        config_steps: the ds_config's accumulation, which the Trainer compares with its own.
    """

    def __init__(
        self, given: Mapping[str, Any], *, ranks: int | None, config_steps: Any = None
    ) -> None:
        self._given = given
        self._ranks = ranks
        self._config_steps = config_steps

    def number(self, name: str) -> int | float | None:
        """Return a number; None where it is not known or not a number."""
        value = self._value(name)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def expected(self) -> Iterator[Expected]:
        """Yield the value that transformers compares each key of the ds_config with."""
        for key, argument in _SAME.items():
            if (number := self.number(argument)) is not None:
                yield Expected(key=key, value=number, argument=argument)
        yield from self._train_batch_size()
        betas = [self.number("adam_beta1"), self.number("adam_beta2")]
        if None not in betas:
            yield Expected(key="optimizer.params.betas", value=betas, argument="adam_beta1+2")
        for precision in ("fp16", "bf16"):
            if (on := self._is_on(precision)) is not None:
                yield Expected(key=f"{precision}.enabled", value=on, argument=precision)
        steps = self._training_steps()
        if steps is not None:
            yield Expected(
                key="scheduler.params.total_num_steps",
                value=steps,
                argument="max_steps" if "max_steps" in self._given else "num_training_steps",
            )
        if (warmup := self._warmup_steps(steps)) is not None:
            yield Expected(
                key="scheduler.params.warmup_num_steps",
                value=max(1, warmup),
                argument="max(1, warmup_steps)",
            )

    def _train_batch_size(self) -> Iterator[Expected]:
        micro = self.number("per_device_train_batch_size")
        steps = self.number("gradient_accumulation_steps")
        if steps is None and isinstance(self._config_steps, int):
            steps = self._config_steps
        if micro is not None and steps is not None and self._ranks is not None:
            yield Expected(
                key="train_batch_size",
                value=micro * steps * self._ranks,
                argument="per_device_train_batch_size x gradient_accumulation_steps x ranks",
            )

    def _value(self, name: str) -> Any:
        default = _DEFAULTS.get(name) if _COMPLETE in self._given else None
        return self._given.get(name, default)

    def _is_on(self, precision: str) -> bool | None:
        if self._is_set(precision):
            return True
        # transformers refuses both at once.
        other = "bf16" if precision == "fp16" else "fp16"
        return False if self._value(precision) is False or self._is_set(other) else None

    def _is_set(self, precision: str) -> bool:
        return True in (self._value(precision), self._value(f"{precision}_full_eval"))

    def _training_steps(self) -> int | float | None:
        """Return the number of optimizer steps, which epochs alone do not determine."""
        steps = self.number("max_steps")
        if steps is not None and steps > 0:
            return steps
        return self.number("num_training_steps")

    def _warmup_steps(self, training_steps: float | None) -> int | None:
        warmup = self.number("warmup_steps")
        ratio = self.number("warmup_ratio")  # of transformers 4
        if not warmup and ratio:
            warmup = ratio
        if warmup is None or not math.isfinite(warmup):
            return None
        if warmup >= 1 or warmup == 0:
            return int(warmup)
        if training_steps is None or not math.isfinite(training_steps):
            return None
        return math.ceil(training_steps * warmup)
