"""Which program a model gets: one written by hand for its family, or LLaMA's as the nearest."""

from autotune.predict.memory.gpt import GptDecoder
from autotune.predict.memory.llama import LlamaDecoder
from autotune.predict.memory.program import Program
from autotune.predict.training import Training

HAND_WRITTEN = frozenset(
    {"llama", "mistral", "qwen2", "mixtral", "qwen2_moe", "qwen3_moe", "gpt2", "opt"}
)


def program(training: Training) -> Program:
    """Record one micro step of the job's model.

    A family that nobody wrote down is recorded as if it were LLaMA; its bill says so.
    """
    if training.model.model_type in ("gpt2", "opt"):
        return GptDecoder(training).program()
    return LlamaDecoder(training).program()
