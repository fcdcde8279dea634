"""`autotune run`."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer


def run(
    model: Annotated[
        str,
        typer.Option(
            help="A preset (tiny, 125m, 350m, 1.3b, 7b, 13b, 34b, 70b in LLaMA shape; gpt2, "
            "gpt2-medium, gpt2-large, gpt2-xl), a Hugging Face config.json, or a folder with one."
        ),
    ],
    gpus: Annotated[int, typer.Option(min=1, help="Data-parallel ranks, one per device.")],
    base: Annotated[
        Path | None,
        typer.Option(help="Your ds_config: keys that are not searched stay as they are."),
    ] = None,
    space: Annotated[
        str, typer.Option(help="Search space: a name in search_spaces/, or a YAML file.")
    ] = "zero",
    seq_len: Annotated[
        int | None, typer.Option(min=1, help="Tokens per sequence. [default: 2048; tiny: 128]")
    ] = None,
    global_batch_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Sequences per optimizer step, all ranks: train_batch_size. "
            "[default: --base, else 32 a rank; tiny: 8]",
        ),
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="bf16, fp16 or fp32. [default: --base, else bf16]")
    ] = None,
    memory_ceiling: Annotated[
        str,
        typer.Option(
            help="The most a rank may use on its device: a share (90%) or a size (72GiB). A CPU "
            "rank's device is the machine's memory divided by its slots."
        ),
    ] = "90%",
    trials: Annotated[
        int, typer.Option(min=1, help="Trials to launch, first trials included.")
    ] = 30,
    time_budget: Annotated[
        str | None, typer.Option(help="Launch no trial after this long: 90s, 45m, 2h.")
    ] = None,
    device: Annotated[
        str, typer.Option(help="auto or cuda: GPUs, and nothing else. cpu: CPU ranks.")
    ] = "auto",
    evaluator: Annotated[
        str,
        typer.Option(
            help="measured: a device for each rank. emulated: one device plays one rank of --gpus; "
            "true memory, modelled communication. modelled: nothing runs, --gpu-type is predicted. "
            "auto: measured if there are enough devices, else emulated on GPUs."
        ),
    ] = "auto",
    gpu_type: Annotated[
        str | None,
        typer.Option(help="Modelled: what every rank runs on, such as h100-80gb."),
    ] = None,
    devices: Annotated[
        Path | None, typer.Option(help="Modelled: a YAML file with more devices.")
    ] = None,
    target_gpus: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Ranks of the run that this is for, more than --gpus: the winner's speed and "
            "memory there are predicted, and which keys should move.",
        ),
    ] = None,
    gpus_per_node: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Emulated, modelled: ranks that share a node's CPUs and memory. "
            "[default: up to 8]",
        ),
    ] = None,
    host_memory: Annotated[
        str | None,
        typer.Option(
            help="Emulated, modelled: memory of a node, such as 1024GiB. "
            "[default: this host's; modelled: not judged]"
        ),
    ] = None,
    cpu_threads: Annotated[
        int | None,
        typer.Option(
            help="CPU threads of a rank (OMP_NUM_THREADS), which an offloaded optimizer runs on. "
            "[default: OMP_NUM_THREADS here, else what --launcher sets, else a share of the cores]"
        ),
    ] = None,
    launcher: Annotated[
        Literal["deepspeed", "hf", "torchrun", "accelerate"] | None,
        typer.Option(
            help="What starts the ranks: torchrun (several on a node) and accelerate give each 1 "
            "CPU thread. [default: not known]"
        ),
    ] = None,
    timed: Annotated[
        bool,
        typer.Option(
            "--timed/--untimed",
            help="Emulated: collectives take the time that they would between real ranks.",
        ),
    ] = True,
    probe: Annotated[
        Path | None,
        typer.Option(
            help="Those times, from `autotune probe`; the speed model takes them too. "
            "[default: a catalogue]"
        ),
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(
            help="Network between nodes that are not there, such as ib-ndr-400, ethernet-100g."
        ),
    ] = None,
    screen: Annotated[
        bool,
        typer.Option("--screen/--no-screen", help="Do not launch what is predicted not to fit."),
    ] = True,
    sampler: Annotated[str, typer.Option(help="tpe or random.")] = "tpe",
    ray_address: Annotated[
        str | None,
        typer.Option(help="Of a running Ray cluster. [default: start one on this machine]"),
    ] = None,
    study: Annotated[
        str | None, typer.Option(help="Name of the study and of its folder in studies/.")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(help="Optuna storage URL. [default: SQLite in the study's folder]"),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with --study; give the same options again.")
    ] = False,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of sampler, weights and data. [default: random]")
    ] = None,
    confirm_rounds: Annotated[
        int,
        typer.Option(
            min=2,
            help="Runs of winner and baseline each, before the export. Not repeated on --resume "
            "while nothing has changed.",
        ),
    ] = 5,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object.")
    ] = False,
) -> None:
    """Search for the fastest ds_config under a memory ceiling, with short real trials.

    With --evaluator modelled nothing runs: speed and memory are predicted.

    Writes studies/NAME/ds_config.json and record.json, and prints the winner beside the best of
    your config, Hugging Face's "auto" and DeepSpeed's defaults. Exit code 0, also for "keep
    yours"; 1 if nothing fits.
    """
    from autotune.cli.live import live_progress
    from autotune.lint.subject import read_launcher
    from autotune.report.summary import result_json, summarize
    from autotune.search.budget import parse_duration_s
    from autotune.tune import TuneRequest, tune

    request = TuneRequest(
        model=model,
        gpus=gpus,
        base=base,
        space=space,
        seq_len=seq_len,
        global_batch_size=global_batch_size,
        precision=precision,
        memory_ceiling=memory_ceiling,
        trials=trials,
        time_budget_s=parse_duration_s(time_budget) if time_budget else None,
        device=device,
        evaluator=evaluator,
        gpu_type=gpu_type,
        devices=devices,
        target_gpus=target_gpus,
        gpus_per_node=gpus_per_node,
        host_memory=host_memory,
        cpu_threads=cpu_threads,
        launcher=read_launcher(launcher)[1],
        timed=timed,
        probe=probe,
        link=link,
        screen=screen,
        sampler=sampler,
        ray_address=ray_address,
        study=study,
        storage=storage,
        resume=resume,
        seed=seed,
        confirm_rounds=confirm_rounds,
    )
    with live_progress(max_trials=trials) as progress:
        result = tune(request, progress)
    if as_json:
        print(json.dumps(result_json(result.study, result.folder, result.record), indent=2))
    else:
        summarize(result.study, result.folder, result.record)
    if result.record is None:
        raise typer.Exit(1)
