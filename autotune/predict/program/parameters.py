"""The weight tensors of a model, in order, with adapters where the base is frozen."""

import math

from autotune.job.model_shape import ModelShape
from autotune.predict.program.events import Parameter
from autotune.predict.program.layers import Dense
from autotune.predict.training_job import Training


class Weights:
    """Registers parameters one by one, as building the model does.

    With fewer trainable parameters than the model has, the base is frozen and the trainable ones
    are laid out as LoRA adapters of equal rank on the projections that `adapted` names, or are the
    last layers, depending on the job; fewer than half a layer's are parameters of the last layer
    that add up to at most as many.
    """

    def __init__(self, training: Training) -> None:
        self.parameters: list[Parameter] = []
        trainable = training.trainable_parameters
        shape = training.model
        self.frozen = trainable is not None and trainable < shape.num_parameters
        self._rank = 0
        self.first_trained_layer = 0
        """Layers below it are frozen and keep nothing for backward."""
        self._left_to_train: float = math.inf
        if self.frozen and trainable and training.trained_on_top:
            num_layers = round(trainable / shape.num_parameters * shape.num_hidden_layers)
            self.first_trained_layer = shape.num_hidden_layers - max(num_layers, 1)
            if num_layers == 0:
                # One norm at least.
                self._left_to_train = max(trainable, shape.hidden_size)
        elif self.frozen and trainable:
            self._rank = adapter_rank(shape, trainable)

    def add(self, name: str, num_elements: int, *, expert: bool = False) -> int:
        """Return the index of a new parameter."""
        trainable = not self.frozen or self._is_on_top(name, num_elements)
        self.parameters.append(Parameter(name, num_elements, trainable, expert))
        return len(self.parameters) - 1

    def _is_on_top(self, name: str, num_elements: int) -> bool:
        layer = name.removeprefix("layers.").split(".")[0]
        above = layer.isdigit() and int(layer) >= self.first_trained_layer > 0
        if not above or num_elements > self._left_to_train:
            return False
        self._left_to_train -= num_elements
        return True

    def dense(
        self,
        name: str,
        num_inputs: int,
        num_outputs: int,
        *,
        bias: bool = False,
        adapted: bool = False,
    ) -> Dense:
        """Register a linear module."""
        weight = self.add(f"{name}.weight", num_inputs * num_outputs)
        bias_index = self.add(f"{name}.bias", num_outputs) if bias else None
        adapter = None
        if adapted and self._rank:
            adapter = (
                self._adapter(f"{name}.lora_A", num_inputs * self._rank),
                self._adapter(f"{name}.lora_B", num_outputs * self._rank),
                self._rank,
            )
        return Dense(
            weight=weight,
            bias=bias_index,
            num_inputs=num_inputs,
            num_outputs=num_outputs,
            adapter=adapter,
        )

    def _adapter(self, name: str, num_elements: int) -> int:
        self.parameters.append(Parameter(name, num_elements))
        return len(self.parameters) - 1


def adapter_rank(shape: ModelShape, trainable_parameters: int) -> int:
    """Return the rank at which adapters on two projections a layer have that many parameters."""
    hidden = shape.hidden_size
    per_rank = shape.num_hidden_layers * (
        2 * hidden + shape.attention_width + shape.key_value_width
    )
    return max(round(trainable_parameters / per_rank), 1)
