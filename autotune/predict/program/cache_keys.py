"""Cache keys of jobs, for results that are computed once."""

from dataclasses import dataclass

from autotune.predict.training_job import Training


@dataclass(frozen=True, slots=True)
class Remembered:
    """A job with the part of it that a cached result depends on: a key for `lru_cache`."""

    identity: str
    training: Training

    def __hash__(self) -> int:
        return hash(self.identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remembered) and self.identity == other.identity


def by_model(training: Training) -> Remembered:
    """Return the key for results that depend on the model and its trained parameters."""
    return Remembered(_model(training), training)


def by_layout(training: Training) -> Remembered:
    """Return the key for results that depend on the model and the ranks that share it."""
    ranks = f"{training.world_size}/{training.expert_parallel_size}"
    return Remembered(f"{_model(training)}{ranks}", training)


def by_program(training: Training) -> Remembered:
    """Return the key for results that depend on one micro step, not on ZeRO or the ranks."""
    fields = (
        training.micro_batch_size,
        training.seq_len,
        training.precision,
        training.activation_checkpointing,
        training.attn_implementation,
        training.expert_parallel_size,
    )
    return Remembered(f"{_model(training)}{fields}", training)


def _model(training: Training) -> str:
    shape = training.model
    trained = training.trainable_parameters, training.trained_on_top
    return f"{shape!r}{sorted(shape.hf_config.items(), key=str)}{trained}"
