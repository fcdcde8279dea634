"""`autotune plan`."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer


def plan(
    model: Annotated[
        str,
        typer.Option(help="A preset such as 7b, a Hugging Face config.json, or a folder with one."),
    ],
    gpus: Annotated[
        str,
        typer.Option(
            help="Data-parallel ranks, one per device: 1 to 4096. Several, such as 8,64,512: how "
            "the best config, its speed and its cost move."
        ),
    ],
    gpu_type: Annotated[
        str,
        typer.Option(help="Such as h100-80gb; names of vendors and NVML do too."),
    ],
    ds_config: Annotated[
        Path | None,
        typer.Argument(metavar="[DS_CONFIG]", help="The config to plan; with --space its base."),
    ] = None,
    space: Annotated[
        str | None,
        typer.Option(help="Plan a search space instead: a name in search_spaces/, or a YAML file."),
    ] = None,
    seq_len: Annotated[
        int | None, typer.Option(help="Tokens per sequence. [default: 2048; tiny: 128]")
    ] = None,
    global_batch_size: Annotated[
        int | None,
        typer.Option(help="Sequences per optimizer step. [default: DS_CONFIG, else 32 a rank]"),
    ] = None,
    memory_ceiling: Annotated[
        str, typer.Option(help="The most a rank may use: a share (90%) or a size (72GiB, 80GB).")
    ] = "90%",
    nodes: Annotated[int | None, typer.Option(help="[default: 8 GPUs a node]")] = None,
    gpus_per_node: Annotated[int | None, typer.Option(help="[default: 8]")] = None,
    link: Annotated[
        str | None,
        typer.Option(
            help="Between nodes: ib-ndr-400, roce-200, ethernet-100g, ...; x4 at the end for 4 "
            "ports a node. [default: as such GPUs are sold]"
        ),
    ] = None,
    probe: Annotated[
        Path | None,
        typer.Option(help="What `autotune probe` measured on the pool. [default: a catalogue]"),
    ] = None,
    tokens: Annotated[
        float | None,
        typer.Option(help="With several numbers of GPUs: a budget, such as 1e12, and its cost."),
    ] = None,
    host_memory: Annotated[
        str | None, typer.Option(help="Of one node, such as 512GiB. [default: not judged]")
    ] = None,
    cpu_threads: Annotated[
        int | None,
        typer.Option(
            help="CPU threads of a rank (OMP_NUM_THREADS), which an offloaded optimizer runs on. "
            "[default: what --launcher sets, else 16]"
        ),
    ] = None,
    launcher: Annotated[
        Literal["deepspeed", "hf", "torchrun", "accelerate"] | None,
        typer.Option(
            help="What starts the ranks: torchrun (several on a node) and accelerate give each 1 "
            "CPU thread. [default: not known]"
        ),
    ] = None,
    activation_checkpointing: Annotated[
        bool,
        typer.Option(
            "--activation-checkpointing/--no-activation-checkpointing",
            help="Whether the model recomputes activations; no ds_config key says so.",
        ),
    ] = False,
    attn_implementation: Annotated[
        str | None, typer.Option(help="sdpa, flash_attention_2 or eager. [default: sdpa]")
    ] = None,
    trainable_params: Annotated[
        int | None, typer.Option(help="With a frozen base: parameters that are trained (LoRA).")
    ] = None,
    devices: Annotated[
        Path | None, typer.Option(help="A YAML file with devices that the catalogue lacks.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object.")
    ] = False,
) -> None:
    """Predict memory and speed, itemised, without any device.

    Of a DS_CONFIG: which phase of a step needs most, what lives there, and whether it fits. Of a
    search space: what fits, and the smallest number of GPUs on which anything does. Exit code 0 if
    it fits (a space, or several numbers of GPUs: if anything does), 1 if not, 2 if the call or a
    file is wrong.
    """
    from autotune.lint.subject import read_launcher
    from autotune.plan import (
        PlanRequest,
        plan_config,
        plan_scale_out,
        plan_space,
        read_counts,
    )
    from autotune.report.plan import print_config_plan, print_space_plan
    from autotune.report.scale_out import print_scale_out_plan

    counts = read_counts(gpus, nodes=nodes, tokens=tokens)
    request = PlanRequest(
        model=model,
        gpus=counts[0],
        gpu_type=gpu_type,
        ds_config=ds_config,
        space=space,
        seq_len=seq_len,
        global_batch_size=global_batch_size,
        memory_ceiling=memory_ceiling,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        link=link,
        probe=probe,
        host_memory=host_memory,
        cpu_threads=cpu_threads,
        launcher=read_launcher(launcher)[1],
        activation_checkpointing=activation_checkpointing,
        attn_implementation=attn_implementation,
        trainable_parameters=trainable_params,
        devices=devices,
    )
    result: Any
    show: Any
    if len(counts) > 1:
        result, show = plan_scale_out(request, counts, tokens=tokens), print_scale_out_plan
    elif space is not None:
        result, show = plan_space(request), print_space_plan
    else:
        result, show = plan_config(request), print_config_plan
    if as_json:
        print(json.dumps(result.to_json(), indent=2))
    else:
        show(result)
    if not result.fits:
        raise typer.Exit(1)
