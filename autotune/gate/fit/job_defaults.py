"""What config and launch say of a run, and what is taken where they do not.

What was left open is taken at its leanest.
"""

from autotune.errors import NotJudgedError
from autotune.job.device import Device
from autotune.job.model_shape import LEARNED_POSITIONS, ModelShape
from autotune.lint.subject import Launch, Launcher, Subject
from autotune.predict.gpu_counts import GPUS_PER_NODE

SHORTEST = 128
"""Tokens where nobody said: fewer make no sense, and what they need is certain."""
DEFAULT_OPTIMIZER = "AdamW"
PRECISION_SECTIONS = frozenset({"bf16", "fp16", "bfloat16"})


def data_parallel_ranks(subject: Subject) -> int:
    """Return the ranks that a batch is divided over.

    Raises:
        NotJudgedError: the devices cannot be shared out.
    """
    gpus = subject.launch.gpus
    assert gpus is not None
    split = tensor_parallel(subject) * (subject.launch.pipeline_stages or 1)
    if gpus % split:
        raise NotJudgedError(
            f"memory is not judged: {gpus} GPUs are no multiple of {split}, what tensor "
            "parallelism and pipeline stages take"
        )
    return gpus // split


def sharding_ranks(subject: Subject, ranks: int) -> int:
    """Return how many of the ranks ZeRO shards over.

    With MiCS states are sharded inside a group and repeated in every other (runtime/zero/mics.py).
    """
    group = whole_number(subject, "zero_optimization.mics_shard_size")
    return group if group is not None and ranks % group == 0 else ranks


def tensor_parallel(subject: Subject) -> int:
    """Return the devices that split every matrix."""
    said = subject.launch.tensor_parallel
    return said or whole_number(subject, "tensor_parallel.autotp_size") or 1


def tokens_of_rank(subject: Subject, shape: ModelShape) -> int:
    """Return the tokens of a rank: its share where a sequence is split.

    Megatron's tensor parallelism may split sequences outside its matrices too, and the checkpoints
    of layers (`partition_activations`); whether it does is set in the model.
    """
    limit = shape.max_position_embeddings
    shortest = min(SHORTEST, limit) if limit and shape.model_type in LEARNED_POSITIONS else SHORTEST
    share = (whole_number(subject, "sequence_parallel_size") or 1) * tensor_parallel(subject)
    return max((subject.launch.seq_len or shortest) // share, 1)


def local_ranks(launch: Launch) -> int:
    """Return the processes of a node, whatever they split."""
    assert launch.gpus is not None
    if launch.nodes:
        return max(launch.gpus // launch.nodes, 1)
    return min(launch.gpus, GPUS_PER_NODE)


def precision(subject: Subject, device: Device) -> str:
    """Return what `"auto"`, or no section at all under Hugging Face, stands for."""
    arguments = subject.launch.hf_args
    if arguments is not None:
        return next((name for name in ("bf16", "fp16") if arguments.get(name) is True), "fp32")
    return "bf16" if device.bf16_flops else "fp16"


def precision_is_open(subject: Subject) -> bool:
    """Whether the precision hangs on TrainingArguments that nobody gave."""
    if subject.launch.hf_args is not None:
        return False
    sections = [subject.section(name) for name in PRECISION_SECTIONS]
    if subject.launch.launcher is Launcher.HF and all(section is None for section in sections):
        return True
    switches = [section.get("enabled") for section in sections if section is not None]
    return True not in switches and "auto" in switches


def optimizer_type(subject: Subject) -> str | None:
    """Return the optimizer's type; None where neither config nor launch says one."""
    said = subject.value("optimizer.type")
    if isinstance(said, str) and said != "auto":
        return said
    arguments = subject.launch.hf_args or {}
    return subject.launch.client_optimizer or arguments.get("optim")


def whole_number(subject: Subject, key: str) -> int | None:
    """Return a whole number of at least 1; None for everything else."""
    number = subject.number(key)
    return int(number) if number is not None and 1 <= number < float("inf") else None
