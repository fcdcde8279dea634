"""What one process does: a few steps of a row's job as rank 0 of N, measured."""

import contextlib
import resource
import time
from collections.abc import Callable, Mapping
from typing import Any

from autotune.job.ceiling import GIB
from tests.benchmarks.memory_rows.lines import gib
from tests.benchmarks.memory_rows.meters import Meter
from tests.benchmarks.memory_rows.spec import Spec

NUM_STEPS = 3
"""Peaks need two: ZeRO 3 prefetches from its second pass, moments join after the first step."""

Report = Callable[[Mapping[str, Any]], None]


def measure(
    spec: Spec,
    config: Mapping[str, Any],
    meter: Meter,
    report: Report,
    *,
    num_steps: int = NUM_STEPS,
) -> None:
    """Train a few steps of a row's job, reporting columns as soon as they are known."""
    import deepspeed
    import torch

    report({"outside_at_start_gib": gib(meter.driver_used() - meter.reserved())})
    _join(spec)
    model = _build(spec, config, meter.name)
    counts = [getattr(p, "ds_numel", p.numel()) for p in model.parameters()]
    trained = [p for p in model.parameters() if p.requires_grad]
    trainable = sum(getattr(p, "ds_numel", p.numel()) for p in trained)
    report({"params": sum(counts), "trainable_parameters": trainable})
    engine = deepspeed.initialize(model=model, model_parameters=trained, config=spec.ds_config)[0]
    del trained
    _never_skip(engine.optimizer)
    meter.wait()
    report(
        {
            "init_allocated_gib": gib(meter.allocated()),
            "init_peak_reserved_gib": gib(meter.peak_reserved()),
        }
    )
    meter.reset()
    vocab = int(config["vocab_size"])
    shape = spec.micro_batch, spec.seq_len
    tokens = torch.randint(0, vocab, shape, device=meter.name)
    step_s: list[float] = []
    retries = [meter.num_retries()]
    for step in range(num_steps):
        start = time.perf_counter()
        for micro_step in range(spec.accumulation):
            loss = engine(input_ids=tokens, labels=tokens, use_cache=False).loss
            engine.backward(loss)
            del loss
            if step == micro_step == 0:
                meter.wait()
                report({"after_first_backward_allocated_gib": gib(meter.allocated())})
            engine.step()
        meter.wait()
        step_s.append(time.perf_counter() - start)
        retries.append(meter.num_retries())
        report(
            peaks(meter)
            | {
                "step_s": " ".join(f"{s:.4f}" for s in step_s),
                "retries_by_step": " ".join(map(str, retries)),
            }
        )
    skipped = int(getattr(engine, "skipped_steps", 0))
    note = f"{skipped} steps skipped" if skipped else ""
    report({"status": "ok", "message": note})


def peaks(meter: Meter) -> dict[str, Any]:
    """Return the columns that say how much memory has been used so far."""
    used = meter.driver_used()
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "peak_allocated_gib": gib(meter.peak_allocated()),
        "peak_reserved_gib": gib(meter.peak_reserved()),
        "alloc_retries": meter.num_retries(),
        "driver_used_gib": gib(used),
        "outside_gib": gib(used - meter.reserved()),
        "host_rss_gib": f"{resident / GIB:.2f}",
    }


def _join(spec: Spec) -> None:
    """Become rank 0 of a world whose other ranks do not exist."""
    import deepspeed
    import torch
    from deepspeed.accelerator import get_accelerator
    from torch.testing._internal.distributed.fake_pg import FakeStore

    # It would compile for a minute, and training never calls it.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=spec.ranks)
    deepspeed.init_distributed()
    if "zero_quantized_gradients" in spec.zero:
        # Its groups are cut by the devices of this node.
        get_accelerator().device_count = lambda: spec.devices_per_node


def _build(spec: Spec, config: Mapping[str, Any], device: str) -> Any:
    """Return the model in training mode, sharded as it is built at stage 3."""
    import deepspeed
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    values = dict(config)
    hf_config = AutoConfig.for_model(values.pop("model_type"), **values)
    hf_config.use_cache = False
    dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
    dtype = dtypes[spec.precision]
    torch.manual_seed(0)
    with contextlib.ExitStack() as stack:
        if spec.stage == 3:
            stack.enter_context(deepspeed.zero.Init(config_dict_or_path=spec.ds_config))
        stack.enter_context(torch.device(device))
        model = AutoModelForCausalLM.from_config(
            hf_config, attn_implementation=spec.attention, dtype=dtype
        )
        if spec.adapter_rank:
            model.requires_grad_(False)
            _add_adapters(model, spec.adapter_rank, dtype)
    if spec.trained_layers:
        model.requires_grad_(False)
        for layer in model.model.layers[-spec.trained_layers :]:
            layer.requires_grad_(True)
    if spec.checkpointing:
        model.gradient_checkpointing_enable()
    return model.train()


def _add_adapters(model: Any, rank: int, dtype: Any) -> None:
    """Put a low-rank pair beside every q_proj and v_proj, as LoRA without dropout."""
    from torch import nn

    class Adapted(nn.Module):
        def __init__(self, base: Any) -> None:
            super().__init__()
            self.base = base
            self.down = nn.Linear(base.in_features, rank, bias=False, dtype=dtype)
            self.up = nn.Linear(rank, base.out_features, bias=False, dtype=dtype)

        def forward(self, inputs: Any) -> Any:
            return self.base(inputs) + self.up(self.down(inputs)) * 2.0

    for layer in model.model.layers:
        for name in ("q_proj", "v_proj"):
            setattr(layer.self_attn, name, Adapted(getattr(layer.self_attn, name)))


def _never_skip(optimizer: Any) -> None:
    """Take every step: what was not communicated may overflow, and a skipped step allocates less.

    The check itself runs, since it takes memory too.
    """
    check = getattr(optimizer, "has_overflow", None)
    if check is None:
        return

    def checked(*args: Any, **kwargs: Any) -> bool:
        check(*args, **kwargs)
        return False

    optimizer.has_overflow = checked
