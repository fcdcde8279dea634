"""What makes two jobs alike, for results that are worked out once and remembered."""

from dataclasses import dataclass

from autotune.predict.training_job import Training


@dataclass(frozen=True, slots=True)
class Remembered:
    """A job under the identity that a remembered result depends on: a key for `lru_cache`."""

    identity: str
    training: Training

    def __hash__(self) -> int:
        return hash(self.identity)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Remembered) and self.identity == other.identity


def by_model(training: Training) -> Remembered:
    """Key what depends on the model and on what of it is trained."""
    return Remembered(_model(training), training)


def by_layout(training: Training) -> Remembered:
    """Key what depends on the model and on the ranks that share it."""
    ranks = f"{training.world_size}/{training.expert_parallel_size}"
    return Remembered(f"{_model(training)}{ranks}", training)


def by_program(training: Training) -> Remembered:
    """Key what depends on one micro step; ZeRO's settings and the ranks have no part in it."""
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
