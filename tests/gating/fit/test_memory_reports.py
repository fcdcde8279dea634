"""Publicly reported runs, with only the facts of the report: nothing that ran may be an error.

The sources are public threads and benchmark pages; host memory and bucket sizes are given if the
thread gives them. A job that ran out of memory need not be an error: if the report leaves out the
cause, a warning or nothing is enough.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from autotune.job.model_shape import ModelShape, shape_from_hf_config
from autotune.lint.finding import Verdict
from tests.gating.judging import Judgement, config, judge, verdict

FP16: dict[str, Any] = {"fp16": {"enabled": True}, "bf16": {"enabled": False}}
PURE_BF16: dict[str, Any] = {
    "bf16": {
        "enabled": True,
        "bf16_master_weights_and_grads": True,
        "bf16_optimizer_states": True,
    }
}
CPU: dict[str, Any] = {"offload_optimizer": {"device": "cpu"}}
ALL_CPU: dict[str, Any] = {**CPU, "offload_param": {"device": "cpu"}}
NVME: dict[str, Any] = {
    name: {"device": "nvme", "nvme_path": "/nvme"}
    for name in ("offload_optimizer", "offload_param")
}
LLM_FOUNDRY = "mosaicml/llm-foundry scripts/train/benchmarking/README.md"
BIGSCIENCE = "bigscience-workshop/bigscience experiments/gpt2.md"
BLOOM = "bigscience-workshop/bigscience train/tr11-176B-ml/chronicles-prequel.md"
OPENTAU = "TensorAuto/OpenTau#429"
HF_BLOG = "huggingface/blog zero-deepspeed-fairscale.md, accelerate-deepspeed.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A run, as far as the report describes it."""

    source: str
    model: float | ModelShape
    """A number of parameters if the report gives nothing else."""
    gpus: int
    device: str
    ds_config: dict[str, Any]
    launch: dict[str, Any]
    host_gib: float | None = None

    def __str__(self) -> str:
        size = self.model if isinstance(self.model, float) else self.model.num_parameters
        zero = self.ds_config["zero_optimization"]
        micro = self.ds_config["train_micro_batch_size_per_gpu"]
        return f"{size:.3g} on {self.gpus} x {self.device}, stage {zero['stage']}, batch {micro}"


def ran(source: str, model: float, on: str, ds_config: dict[str, Any], **launch: Any) -> Report:
    """Return a run that trained; `on` is such as `8 x a100-80gb`."""
    gpus, _, device = on.partition(" x ")
    return Report(
        source=source,
        model=model,
        gpus=int(gpus),
        device=device,
        ds_config=ds_config,
        host_gib=launch.pop("host_gib", None),
        launch={"seq_len": None} | launch,
    )


def mpt(billions: float, on: str, micro: int, seq_len: int, *, checkpointed: bool) -> Report:
    """Return a row of MosaicML's benchmark, sharded with FSDP, which holds what stage 3 does."""
    return ran(
        LLM_FOUNDRY,
        billions * 1e9,
        on,
        config(3, micro=micro),
        seq_len=seq_len,
        activation_checkpointing=checkpointed,
    )


def gpt_on_v100(billions: float, micro: int, gpus: int = 64, **more: Any) -> Report:
    """Return a row of BigScience's experiments: 4 V100 of 32 GB and 160 GB of RAM a node."""
    zero = more.pop("zero", {})
    return ran(
        BIGSCIENCE,
        billions * 1e9,
        f"{gpus} x v100-32gb",
        config(3, micro=micro, **zero, **FP16),
        **{"seq_len": 1_024, "activation_checkpointing": True, "nodes": gpus // 4} | more,
    )


def bloom(billions: float, gpus: int, micro: int, stages: int, stage: int = 1) -> Report:
    """Return a row of BLOOM's search for a layout: tensor parallel 8 on A100 of 80 GB."""
    return ran(
        BLOOM,
        billions * 1e9,
        f"{gpus} x a100-80gb",
        config(stage, micro=micro),
        seq_len=2_048,
        activation_checkpointing=True,
        tensor_parallel=8,
        pipeline_stages=stages,
    )


def frozen(stage: int, micro: int) -> Report:
    """Return a row about a frozen 33B with 0.91B trained parameters."""
    return ran(
        OPENTAU,
        34.3e9,
        "8 x a100-80gb",
        config(stage, micro=micro),
        seq_len=201,
        trainable_params=910_000_000,
    )


RAN = (
    mpt(30.02, "8 x h100-80gb", 1, 8_192, checkpointed=True),
    mpt(29.98, "32 x h100-80gb", 14, 2_048, checkpointed=True),
    mpt(13.01, "8 x h100-80gb", 1, 32_768, checkpointed=True),
    mpt(12.85, "8 x h100-80gb", 2, 2_048, checkpointed=False),
    mpt(6.78, "8 x h100-80gb", 2, 32_768, checkpointed=True),
    mpt(6.68, "8 x h100-80gb", 8, 8_192, checkpointed=True),
    mpt(6.66, "8 x h100-80gb", 6, 2_048, checkpointed=False),
    mpt(2.65, "64 x h100-80gb", 6, 2_048, checkpointed=False),
    mpt(1.32, "64 x h100-80gb", 20, 2_048, checkpointed=False),
    mpt(0.76, "8 x a100-80gb", 24, 2_048, checkpointed=False),
    mpt(0.356, "8 x a100-80gb", 32, 2_048, checkpointed=False),
    mpt(29.98, "8 x a100-80gb", 3, 2_048, checkpointed=True),
    gpt_on_v100(52, 4),
    gpt_on_v100(52, 8),
    gpt_on_v100(52, 10),
    gpt_on_v100(52, 12, zero=CPU, host_gib=160),
    gpt_on_v100(52, 12, zero=ALL_CPU, host_gib=160),
    gpt_on_v100(52, 4, 32, zero=ALL_CPU, host_gib=160),
    gpt_on_v100(25, 4, 16, zero=ALL_CPU, host_gib=160),
    gpt_on_v100(52, 16),
    gpt_on_v100(52, 32, tensor_parallel=2),
    gpt_on_v100(52, 48, tensor_parallel=4),
    gpt_on_v100(52, 64, zero=ALL_CPU, tensor_parallel=4),
    gpt_on_v100(24, 16),
    bloom(200, 80, 1, 10),
    bloom(20, 8, 1, 1),
    bloom(200, 160, 1, 10),
    bloom(181, 384, 8, 12),
    bloom(181, 384, 4, 6),
    bloom(181, 384, 2, 12, stage=0),
    frozen(2, 1),
    frozen(2, 16),
    frozen(2, 26),
    frozen(2, 27),
    frozen(3, 32),
    frozen(3, 128),
    ran(
        LLM_FOUNDRY,
        64.86e9,
        "64 x a100-40gb",
        config(3, micro=2, **PURE_BF16),
        seq_len=2_048,
        activation_checkpointing=True,
    ),
    ran(HF_BLOG, 3e9, "1 x rtx-3090", config(2, micro=20, **CPU, **FP16)),
    ran(
        HF_BLOG,
        1.5e9,
        "1 x titan-rtx",
        config(3, micro=16, **ALL_CPU, **FP16),
        seq_len=128,
        host_gib=60,
    ),
    ran(HF_BLOG, 4e8, "2 x titan-rtx", config(2, micro=200, **FP16), seq_len=128),
    ran(HF_BLOG, 4e8, "2 x titan-rtx", config(0, micro=100, **FP16), seq_len=128),
    ran(HF_BLOG, 9e8, "2 x titan-rtx", config(0, micro=8, **FP16), seq_len=128),
    ran("deepspeedai/DeepSpeed#467", 1e10, "128 x a100-40gb", config(2, **CPU, **FP16)),
    ran("deepspeedai/DeepSpeed#724", 2.5e9, "32 x v100-32gb", config(2, **FP16)),
    ran("deepspeedai/DeepSpeed#1130", 1e10, "8 x v100-32gb", config(3, **NVME, **FP16)),
    ran("deepspeedai/DeepSpeed#1174", 5e9, "8 x a100-40gb", config(2)),
    ran("deepspeedai/DeepSpeed#1453", 52e9, "64 x a100-40gb", config(3, micro=16), seq_len=512),
    ran("deepspeedai/DeepSpeed#1635", 1.35e9, "1 x rtx-3090", config(3, **CPU, **FP16)),
    ran("deepspeedai/DeepSpeed#2159", 1e10, "2 x a100-40gb", config(3, micro=8, **NVME)),
    ran("deepspeedai/DeepSpeed#6834", 72e9, "32 x a100-80gb", config(3)),
    ran("deepspeedai/DeepSpeed#6834", 72e9, "32 x a100-80gb", config(3, **ALL_CPU)),
    ran("deepspeedai/DeepSpeed#7474", 3e9, "2 x a100-40gb", config(3, **CPU)),
    ran("tatsu-lab/stanford_alpaca#56", 6.7e9, "2 x a100-80gb", config(3)),
    ran("CVI-SZU/Linly#83", 6.7e9, "4 x a100-40gb", config(3, **ALL_CPU, **FP16), host_gib=256),
    ran(
        "DeepSpeed docs/_posts/2022-07-26-deepspeed-azure.md",
        1.75e11,
        "256 x a100-80gb",
        config(3, micro=32, **FP16),
        seq_len=512,
        activation_checkpointing=True,
    ),
    ran(
        "DeepSpeed docs/_posts/2022-07-26-deepspeed-azure.md",
        2e12,
        "1024 x a100-80gb",
        config(3, micro=8, **FP16),
        seq_len=1_024,
        activation_checkpointing=True,
    ),
    ran("deepspeedai/DeepSpeed#237", 8e9, "8 x v100-32gb", config(2, **FP16), tensor_parallel=8),
    ran("deepspeedai/DeepSpeed#237", 4e10, "48 x v100-32gb", config(2, **FP16), tensor_parallel=8),
)


@cache
def judgement(number: int) -> Judgement:
    report = RAN[number]
    return judge(
        report.ds_config,
        model=report.model,
        device=report.device,
        host_gib=report.host_gib,
        gpus=report.gpus,
        **report.launch,
    )


@pytest.mark.parametrize("number", range(len(RAN)), ids=lambda number: str(RAN[number]))
def test_a_run_that_trained_is_not_an_error(number: int) -> None:
    assert verdict(judgement(number)) is not Verdict.ERROR, RAN[number].source


def test_most_runs_that_trained_get_no_finding() -> None:
    """A warning means near the limit of card or host, or that a fact is not known."""
    quiet = [
        number
        for number in range(len(RAN))
        # A missing sequence length alone is a warning.
        if all(
            str(finding.suggestion).startswith("give --seq-len")
            for finding in judgement(number).findings
        )
    ]
    assert len(quiet) >= 0.7 * len(RAN)


def wide_gpt(hidden: int, layers: int) -> ModelShape:
    hf = {"model_type": "gpt2", "n_embd": hidden, "n_layer": layers, "n_head": hidden // 128}
    return shape_from_hf_config(hf | {"vocab_size": 50_257}, name="gpt", where="test")


@pytest.mark.parametrize(
    ("model", "on", "ds_config", "launch"),
    [
        # bigscience-workshop/bigscience experiments/gpt2.md: could not start, at any batch
        (52e9, "64 x v100-32gb", config(2, **CPU, **FP16), {"activation_checkpointing": True}),
        # deepspeedai/DeepSpeed#237: 30B and 40B
        (30e9, "8 x v100-32gb", config(2, **FP16), {"tensor_parallel": 8}),
        (40e9, "8 x v100-32gb", config(2, **FP16), {"tensor_parallel": 8}),
        # tatsu-lab/stanford_alpaca#56: on one card
        (6.7e9, "1 x a100-80gb", config(3), {}),
        # deepspeedai/DeepSpeed#3208
        (1.3e9, "1 x t4", config(2, **FP16), {}),
        # deepspeedai/DeepSpeed#1624: few huge layers, parameters alone offloaded, 1 GPU
        (wide_gpt(6_912, 12), "1 x rtx-3090", config(3, offload_param={"device": "cpu"}), {}),
        # huggingface/blog zero-deepspeed-fairscale.md: T5-3B without DeepSpeed, batch 1
        (3e9, "1 x rtx-3090", config(0, **FP16), {}),
        (1.5e9, "1 x titan-rtx", config(0, **FP16), {}),
    ],
)
def test_a_run_that_could_not_start_is_an_error(
    model: float | ModelShape, on: str, ds_config: dict[str, Any], launch: dict[str, Any]
) -> None:
    gpus, _, device = on.partition(" x ")
    options: dict[str, Any] = {"gpus": int(gpus), "seq_len": None} | launch
    assert verdict(judge(ds_config, model=model, device=device, **options)) is Verdict.ERROR


@pytest.mark.parametrize(
    ("overlap", "bucket", "mebibytes"),
    [(True, 500_000_000, 0), (False, 500_000_000, 954), (True, 100_000_000, 1_527)],
)
def test_buckets_count_as_a_report_measured(overlap: bool, bucket: int, mebibytes: int) -> None:
    """deepspeedai/DeepSpeed#1302: 21152, 20198 and 19625 MiB of a 1.8B model at stage 2."""
    items = []
    for zero in (
        {"overlap_comm": True, "reduce_bucket_size": 500_000_000},
        {"overlap_comm": overlap, "reduce_bucket_size": bucket},
    ):
        memory = judge(config(2, **zero), model=1.8e9, activation_checkpointing=True).memory
        assert memory is not None
        items.append(
            max(p["items"].get("reduce_bucket", 0) for p in memory["device"]["parts"].values())
        )
    assert (items[0] - items[1]) / 2**20 == pytest.approx(mebibytes, rel=0.01)


def test_a_higher_stage_may_need_more() -> None:
    """deepspeedai/DeepSpeed#2992: stage 2's buckets outweigh what it shards of a small model."""
    need = []
    for stage in (0, 2):
        ds_config = config(stage, micro=39, overlap_comm=True, **FP16)
        options: dict[str, Any] = {"gpus": 4, "nodes": 2, "seq_len": 128}
        memory = judge(
            ds_config, model=5e7, device="t4", activation_checkpointing=False, **options
        ).memory
        assert memory is not None
        need.append(memory["device"]["peak_allocated_bytes"])
    assert need[0] < need[1]


@pytest.mark.parametrize(("gpus", "gigabytes"), [(4, 165), (8, 178)])
def test_host_memory_is_what_a_report_measured(gpus: int, gigabytes: float) -> None:
    """CVI-SZU/Linly#83: 7B with both offloads took more than 160 GB with 4 GPUs, 178 GB with 8."""
    ds_config = config(3, **ALL_CPU, **FP16)
    memory = judge(ds_config, model=6.7e9, device="a100-40gb", gpus=gpus, host_gib=512).memory
    assert memory is not None
    assert memory["host"]["total_bytes"] / 1e9 == pytest.approx(gigabytes, rel=0.1)
