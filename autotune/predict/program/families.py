"""Which program a model gets: one written by hand for its family, or a trace of its code."""

from functools import lru_cache

from autotune.job.model_shape import require_judgeable
from autotune.predict.program.cache_keys import Remembered, by_program
from autotune.predict.program.events import Program
from autotune.predict.program.gpt import GptDecoder
from autotune.predict.program.llama import LlamaDecoder
from autotune.predict.training_job import Training

HAND_WRITTEN = frozenset({"llama", "mistral", "qwen2", "mixtral", "gpt2", "opt"})
"""Families with a program of their own; a trace agrees with each to within 2 %."""


def is_traced(training: Training) -> bool:
    """Whether the job's model is of a family without a hand-written program."""
    return training.model.model_type not in HAND_WRITTEN


def program(training: Training) -> Program:
    """Return one micro step of the job's model; the last few are remembered.

    Raises:
        WorkloadError: the family has to be traced, and cannot be.
        NotJudgedError: the shape is a part of the model only, or too large.
    """
    require_judgeable(training.model)
    return _program(by_program(training))


@lru_cache(maxsize=16)
def _program(key: Remembered) -> Program:
    training = key.training
    if is_traced(training):
        from autotune.predict.program.trace import trace_program

        return trace_program(training)
    if training.model.model_type in ("gpt2", "opt"):
        return GptDecoder(training).program()
    return LlamaDecoder(training).program()
