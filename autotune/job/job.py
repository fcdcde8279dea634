"""A training job as the user describes it: what is trained, where, and how it is launched.

The fields are the shared options of `run`, `plan` and `gate`, the keys of `autotune.yaml`, and the
arguments of `autotune.Job`.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from autotune.errors import JobError
from autotune.job.launcher import Launcher
from autotune.job.workload import PRECISIONS

WHAT, WHERE, HOW = "What is trained", "Where it runs", "How it is launched"
"""Panels of `--help`."""


def _option(panel: str, text: str, **other: Any) -> Any:
    """Declare a field that is also an option; None means not given."""
    return field(default=None, metadata={"panel": panel, "help": text, **other})


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training job; a field that is None is read from the other sources.

    `autotune.job.resolve.resolve_job` completes it.

    Raises:
        JobError: values are out of range or contradict each other; all are named.

    Example:
        >>> Job(model="7b", gpus=8, seq_len=4096).gpus
        8
    """

    model: str | None = _option(
        WHAT,
        "A preset (tiny, 125m, 350m, 1.3b, 7b, 13b, 34b, 70b in LLaMA shape; gpt2, gpt2-medium, "
        "gpt2-large, gpt2-xl), a Hugging Face config.json, a folder with one, or a Hub name that "
        "is in the local cache.",
    )
    params: float | None = _option(
        WHAT, "Parameters, such as 6.7e9, instead of --model: a LLaMA-like shape is assumed."
    )
    trainable_params: float | None = _option(
        WHAT, "With a frozen base (LoRA): number of trained parameters. [default: all]"
    )
    largest_parameter: int | None = _option(
        WHAT, "Elements of the largest single parameter, for NVMe buffers. [default: the model's]"
    )
    seq_len: int | None = _option(WHAT, "Tokens per sequence. [default: 2048; tiny: 128]")
    global_batch_size: int | None = _option(
        WHAT,
        "Sequences per optimizer step, all ranks: train_batch_size. [default: the ds_config, else "
        "32 a rank; tiny: 8]",
    )
    precision: str | None = _option(WHAT, "bf16, fp16 or fp32. [default: the ds_config, else bf16]")
    activation_checkpointing: bool | None = _option(
        WHAT, "Whether the model recomputes activations. [default: unknown; run: searched]"
    )
    attn_implementation: str | None = _option(
        WHAT,
        "sdpa, flash_attention_2, flex_attention or eager. [default: what the installed "
        "transformers chooses]",
    )
    client_optimizer: str | None = _option(
        WHAT, "Class of the optimizer that your script passes to deepspeed.initialize."
    )
    gpus: int | None = _option(WHERE, "Devices of the whole job, one rank each.")
    nodes: int | None = _option(WHERE, "Machines. [default: 8 GPUs each]")
    gpus_per_node: int | None = _option(WHERE, "Ranks that share a machine. [default: up to 8]")
    gpu_type: str | None = _option(
        WHERE,
        "Device of every rank, such as h100-80gb; names of vendors and NVML work too. run: only "
        "with --evaluator modelled.",
    )
    gpu_memory: str | None = _option(
        WHERE, "Memory of one GPU: GiB, or a size such as 80GB. [default: that of --gpu-type]"
    )
    memory_ceiling: str | None = _option(
        WHERE,
        "The most a rank may use on its device: a share (90%) or a size (72GiB, 80GB). A CPU "
        "rank's device is the machine's memory divided by its slots. [default: 90%]",
    )
    host_memory: str | None = _option(
        WHERE, "Memory of one machine: GiB, or a size such as 512GB. [default: not judged]"
    )
    link: str | None = _option(
        WHERE,
        "Network between machines: ib-ndr-400, roce-200, ethernet-100g, ...; x4 at the end for 4 "
        "ports per machine. [default: usual for the GPU type]",
    )
    probe: Path | None = _option(
        WHERE, "A file of `autotune probe` on the pool. [default: a catalogue]"
    )
    devices: Path | None = _option(WHERE, "A YAML file with devices that are not in the catalogue.")
    launcher: Launcher | None = _option(
        HOW,
        "What reads the ds_config first: hf is the Hugging Face Trainer or Accelerate. Or what "
        "starts the ranks: torchrun (several on a machine) and accelerate give each 1 CPU thread. "
        "[default: deepspeed; hf with --hf-args or an Accelerate YAML]",
    )
    hf_args: Path | None = _option(HOW, "A JSON file of TrainingArguments.")
    cpu_threads: int | None = _option(
        HOW,
        "CPU threads of a rank (OMP_NUM_THREADS), which an offloaded optimizer runs on. [default: "
        "what --launcher sets, else a fair share of the cores]",
    )
    pipeline_stages: int | None = _option(HOW, "Groups of layers in a pipeline. [default: 1]")
    tensor_parallel: int | None = _option(HOW, "Ranks that share each layer. [default: 1]")

    def __post_init__(self) -> None:
        faults = [*self._out_of_range(), *self._contradictions()]
        if self.precision not in (None, *PRECISIONS):
            faults.append(f"--precision {self.precision}: must be one of {', '.join(PRECISIONS)}")
        if faults:
            raise JobError(*faults)

    def _out_of_range(self) -> Iterator[str]:
        for name in _COUNTS:
            value = getattr(self, name)
            # `not >=` instead of `<`, which nan would pass.
            if value is not None and not 1 <= value < math.inf:
                yield f"{option_of(name)} {value}: must be at least 1"

    def _contradictions(self) -> Iterator[str]:
        if self.model is not None and self.params is not None:
            yield "--params: --model names the model already; leave one of the two out"
        if self.nodes is not None and self.gpus_per_node is not None:
            yield "--nodes and --gpus-per-node: one implies the other; give one"
        for option, number in (("--nodes", self.nodes), ("--gpus-per-node", self.gpus_per_node)):
            if self.gpus and number and number >= 1 and self.gpus % number:
                yield (
                    f"{option} {number}: does not divide {self.gpus} GPUs; use a divisor of --gpus"
                )

    @property
    def given(self) -> Mapping[str, Any]:
        """The fields that are not None."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def option_of(name: str) -> str:
    """Return the option that sets a field.

    Example:
        >>> option_of("seq_len")
        '--seq-len'
    """
    return f"--{name.replace('_', '-')}"


_COUNTS = (
    "params",
    "trainable_params",
    "largest_parameter",
    "seq_len",
    "global_batch_size",
    "gpus",
    "nodes",
    "gpus_per_node",
    "cpu_threads",
    "pipeline_stages",
    "tensor_parallel",
)
