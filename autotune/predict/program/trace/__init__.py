"""Programs of models that have no hand-written one: traced from Hugging Face's own code.

The only place under `autotune.predict` that imports torch, and only when a trace is asked for.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache

from autotune.errors import WorkloadError
from autotune.predict.program.cache_keys import Remembered, by_program
from autotune.predict.program.events import Program
from autotune.predict.program.trace.micro_batches import TRACED, scaled
from autotune.predict.program.trace.trace_files import read_trace, write_trace
from autotune.predict.training_job import Training


def trace_program(training: Training) -> Program:
    """Trace one micro step of the job's model under fake tensors; no memory, no device.

    One layer of each kind is traced, a second for most models, and kept in the user's cache folder.
    Larger micro batches follow from two small ones.

    Raises:
        WorkloadError: transformers cannot build or run the model without real data.
    """
    shape = training.model
    if training.trainable_parameters is not None:
        raise WorkloadError(
            f"--model {shape.name}: model_type {shape.model_type} is traced as a whole; frozen "
            "parameters are known for LLaMA, GPT-2 and OPT families only"
        )
    return _traced(by_program(training))


@lru_cache(maxsize=64)
def _traced(key: Remembered) -> Program:
    training = key.training
    if training.micro_batch_size > TRACED[-1]:
        small, large = (
            _traced(by_program(replace(training, micro_batch_size=size))) for size in TRACED
        )
        program = scaled((small, large), training.micro_batch_size)
        if program is not None:
            return program
    kept = read_trace(training)
    if kept is not None:
        return kept
    program = _trace(training)
    write_trace(training, program)
    return program


def _trace(training: Training) -> Program:
    from autotune.predict.program.trace.step import trace_step

    try:
        with _without_torch_s_log():
            return trace_step(training)
    except Exception as error:  # whatever a model's own code may raise
        name = type(error).__name__
        raise WorkloadError(
            f"--model {training.model.name}: model_type {training.model.model_type} cannot be "
            f"traced ({name}: {str(error).splitlines()[0] if str(error) else 'no message'}); "
            "its memory is not predicted"
        ) from error


@contextmanager
def _without_torch_s_log() -> Iterator[None]:
    """Keep torch from printing the traceback of an error that is raised and reported anyway."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
