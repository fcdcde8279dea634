"""Programs of models that nobody wrote down: traced from Hugging Face's own code.

The only place under `autotune.predict` that imports torch, and only when a trace is asked for.
"""

from dataclasses import dataclass
from functools import lru_cache

from autotune.errors import WorkloadError
from autotune.predict.memory.program import Program
from autotune.predict.training import Training


def trace_program(training: Training) -> Program:
    """Trace one micro step of the job's model under fake tensors; no memory, no device.

    A second for a few layers, ten for eighty.

    Raises:
        WorkloadError: transformers cannot build or run the model without real data.
    """
    shape = training.model
    if training.trainable_parameters is not None:
        raise WorkloadError(
            f"--model {shape.name}: model_type {shape.model_type} is traced as a whole; frozen "
            "parameters are known for LLaMA, GPT-2 and OPT families only"
        )
    return _traced(_Key(_identity(training), training))


def _identity(training: Training) -> str:
    """Return what a program depends on; ZeRO's settings have no part in it."""
    shape = training.model
    fields = (
        shape.num_hidden_layers,
        training.micro_batch_size,
        training.seq_len,
        training.precision,
        training.activation_checkpointing,
        training.attn_implementation,
    )
    return f"{sorted(shape.hf_config.items(), key=str)}{fields}"


@dataclass(frozen=True, slots=True)
class _Key:
    identity: str
    training: Training

    def __hash__(self) -> int:
        return hash(self.identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.identity == other.identity


@lru_cache(maxsize=64)
def _traced(key: _Key) -> Program:
    from autotune.predict.trace.step import trace_step

    training = key.training
    try:
        return trace_step(training)
    except Exception as error:  # whatever a model's own code may raise
        name = type(error).__name__
        raise WorkloadError(
            f"--model {training.model.name}: model_type {training.model.model_type} cannot be "
            f"traced ({name}: {str(error).splitlines()[0] if str(error) else 'no message'}); "
            "its memory is not predicted"
        ) from error
