import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from autotune.cli.plan import plan
from autotune.errors import AutotuneError, ConfigError, HardwareError, JobError, WorkloadError
from autotune.planning import (
    ConfigPlan,
    PlanRequest,
    SpacePlan,
    plan_config,
    plan_scale_out,
    plan_space,
)
from autotune.predict.gpu_counts import COUNTS, smallest_fitting
from autotune.predict.memory.estimate import MemoryEstimate
from autotune.predict.memory.fit import Answer
from autotune.predict.training_job import Training
from tests.asked import plan_request
from tests.planning.conftest import CONFIG, SMALL_SPACE

app = typer.Typer()
app.command()(plan)


def request(**changes: Any) -> PlanRequest:
    usual: dict[str, Any] = {"model": "7b", "gpus": 8, "gpu_type": "h100-80gb"}
    return plan_request(**usual | changes)


def estimate_of(planned: ConfigPlan) -> MemoryEstimate:
    assert planned.estimate is not None
    return planned.estimate


def training_of(planned: ConfigPlan) -> Training:
    assert planned.training is not None
    return planned.training


def step_s_of(planned: ConfigPlan) -> float:
    assert planned.throughput is not None
    return planned.throughput.step_s


def run(*arguments: str | int | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> ConfigPlan:
    """The plan of the usual config."""
    file = tmp_path_factory.mktemp("plan") / "ds_config.json"
    file.write_text(json.dumps(CONFIG))
    return plan_config(request(ds_config=file))


def test_a_config_gets_an_itemised_bill(planned: ConfigPlan) -> None:
    estimate = estimate_of(planned)
    device = estimate.device
    assert sum(device.items.values()) == device.peak_allocated_bytes
    assert planned.fits
    assert estimate.method == "replay"
    assert training_of(planned).accumulation == 2


@pytest.mark.parametrize(
    ("keys", "batch"),
    [
        ({}, (64, 1, 8)),
        ({"train_batch_size": 16}, (64, 1, 8)),
        # These two contradict each other; `autotune run` takes the batch that is asked for too.
        ({"train_batch_size": 250, "train_micro_batch_size_per_gpu": 4}, (64, 4, 2)),
        ({"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 2}, (64, 4, 2)),
    ],
)
def test_the_global_batch_that_was_asked_for_is_planned(
    tmp_path: Path, keys: dict[str, Any], batch: tuple[int, int, int]
) -> None:
    file = tmp_path / "ds_config.json"
    file.write_text(json.dumps(CONFIG | keys), encoding="utf-8")
    asked = {"model": "125m", "ds_config": file, "global_batch_size": 64}
    planned = plan_config(request(**asked))
    assert tuple(planned.batch.values()) == batch
    assert planned.errors == ()
    (world,) = plan_scale_out(request(**asked), (8,)).worlds
    assert world.training == planned.training


def test_the_batch_is_printed_with_the_sizes_that_it_replaces(config: Path) -> None:
    job = (config, "--model", "125m", "--gpus", 8, "--gpu-type", "h100-80gb")
    theirs = run(*job).stdout
    assert "accumulation 2, global batch 16, " in theirs
    assert "--global-batch-size" not in theirs
    asked = run(*job, "--global-batch-size", 64).stdout
    assert "accumulation 8, global batch 64, " in asked
    assert "--global-batch-size makes gradient_accumulation_steps 8; the config has 2\n" in asked


def test_the_rank_that_holds_the_most_is_named_where_ranks_differ(tmp_path: Path) -> None:
    file = tmp_path / "ds_config.json"
    zero = {"stage": 2, "reduce_bucket_size": 10_000_000}
    keys = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}}
    file.write_text(json.dumps({"zero_optimization": zero} | keys), encoding="utf-8")
    asked = (file, "--model", "1.3b", "--gpus", 8, "--gpu-type", "h100-80gb")
    whole = (*asked, "--seq-len", 512, "--no-activation-checkpointing")
    assert "GiB on rank 7, which holds the most, outside" in run(*whole).stdout
    device = json.loads(run(*whole, "--json").stdout)["memory"]["device"]
    assert device["rank"] == 7
    file.write_text(json.dumps({"zero_optimization": {"stage": 1}} | keys), encoding="utf-8")
    assert "on rank" not in run(*whole).stdout


def test_json_has_the_promised_shape(config: Path) -> None:
    done = run(config, "--model", "7b", "--gpus", 8, "--gpu-type", "h100-80gb", "--json")
    assert done.exit_code == 0
    printed = json.loads(done.stdout)
    device = printed["memory"]["device"]
    assert isinstance(device["items"], dict)
    assert device["peak_allocated_bytes"] <= device["peak_reserved_bytes"]
    assert device["fits"] is True
    assert printed["memory"]["host"]["total_bytes"] > 0
    throughput = printed["throughput"]
    for key in ("tokens_per_s", "tokens_per_s_low", "tokens_per_s_high", "step_s"):
        assert throughput[key] > 0
    assert sum(throughput["items"].values()) == pytest.approx(throughput["step_s"])


def test_errors_of_the_gate_are_printed_with_the_plan(tmp_path: Path) -> None:
    misspelt = tmp_path / "misspelt.json"
    misspelt.write_text(
        '{"train_micro_batch_size_per_gpu": 1, "zero_optimisation": {"stage": 3}}', encoding="utf-8"
    )
    job = ("--model", "125m", "--gpus", 8, "--gpu-type", "h100-80gb")
    printed = json.loads(run(misspelt, *job, "--json").stdout)
    assert [error["field"] for error in printed["errors"]] == ["zero_optimisation"]
    message = "autotune gate reports an error: zero_optimisation: no such key"
    assert message in run(misspelt, *job).stdout


def test_what_does_not_fit_exits_with_1_and_says_what_to_shrink(config: Path) -> None:
    done = run(config, "--model", "70b", "--gpus", 8, "--gpu-type", "t4")
    assert done.exit_code == 1
    assert "does not fit" in done.stdout
    assert "shrink" in done.stdout
    assert "smallest number of GPUs that fits" in done.stdout


def test_checkpointing_changes_the_bill(config: Path) -> None:
    kept, recomputed = (
        plan_config(request(ds_config=config, activation_checkpointing=flag))
        for flag in (False, True)
    )
    assert (
        estimate_of(recomputed).device.peak_allocated_bytes
        < 0.7 * estimate_of(kept).device.peak_allocated_bytes
    )


def test_the_smallest_number_of_gpus_fits_and_the_next_smaller_does_not(
    config: Path,
) -> None:
    asked = {"ds_config": config, "seq_len": 2_048, "memory_ceiling": "90%"}
    smallest = plan_config(request(**asked)).smallest_gpus
    assert smallest == 2
    assert plan_config(request(**asked, gpus=smallest)).fits
    assert not plan_config(request(**asked, gpus=1)).fits


@pytest.mark.parametrize("gpus", [1, 3, 4_096])
def test_any_number_of_gpus_works(config: Path, gpus: int) -> None:
    result = plan_config(request(model="125m", ds_config=config, gpus=gpus, gpu_type="b200"))
    assert estimate_of(result).device.peak_allocated_bytes > 0


def test_a_config_without_precision_is_planned_as_fp32(tmp_path: Path) -> None:
    file = tmp_path / "silent.json"
    file.write_text('{"train_micro_batch_size_per_gpu": 1}')
    assert training_of(plan_config(request(model="125m", ds_config=file))).precision == "fp32"


def test_auto_is_what_hugging_face_puts_there(tmp_path: Path) -> None:
    zero = {"stage": 3, "reduce_bucket_size": "auto"}
    file = tmp_path / "auto.json"
    file.write_text(json.dumps(CONFIG | {"zero_optimization": zero}))
    training = training_of(plan_config(request(ds_config=file)))
    assert training.zero.reduce_bucket_size == 4_096**2


@pytest.fixture(scope="module")
def planned_space(tmp_path_factory: pytest.TempPathFactory) -> SpacePlan:
    """The plan of the small space."""
    file = tmp_path_factory.mktemp("plan") / "small.yaml"
    file.write_text(SMALL_SPACE)
    return plan_space(request(model="13b", space=str(file), gpu_type="a100-80gb"))


def test_a_space_gets_a_table_of_what_fits(planned_space: SpacePlan) -> None:
    result = planned_space
    fitting = {
        (
            line.values["zero_optimization.stage"],
            line.values["model.activation_checkpointing"],
        ): line.best and line.best.values["train_micro_batch_size_per_gpu"]
        for line in result.lines
    }
    assert set(fitting) == {(1, False), (1, True), (3, False), (3, True)}
    assert fitting[3, True] == 8
    assert fitting[3, False] in (1, 2)
    assert result.smallest_gpus is not None
    assert result.smallest_gpus <= 8
    assert sum(line.num_proposals for line in result.lines) == 16


def test_the_best_of_a_line_is_confirmed_by_replay(planned_space: SpacePlan) -> None:
    for line in planned_space.lines:
        assert line.estimate.method == "replay"
        assert bool(line.best) == bool(line.estimate.fits)


def test_a_space_that_nowhere_fits_exits_with_1(space: Path) -> None:
    done = run(
        "--space", space, "--model", "70b", "--gpus", 1, "--gpu-type", "t4", "--seq-len", 4_096,
        "--json",
    )  # fmt: skip
    assert done.exit_code == 1
    assert json.loads(done.stdout)["fits"] is False


def test_a_space_is_printed_as_a_table(space: Path) -> None:
    done = run("--space", space, "--model", "1.3b", "--gpus", 4, "--gpu-type", "l4")
    assert done.exit_code == 0
    assert "smallest number of GPUs on which anything fits" in done.stdout


def test_the_shipped_space_can_be_planned() -> None:
    result = plan_space(request(model="1.3b", space="zero", gpu_type="a10"))
    assert result.fits
    assert len(result.lines) == 18


@pytest.mark.parametrize("smallest", [1, 2, 4, 8, 24, 4_096])
def test_the_smallest_count_is_found(smallest: int) -> None:
    assert smallest_fitting(lambda gpus: gpus >= smallest) == smallest


def test_there_may_be_no_smallest_count() -> None:
    assert smallest_fitting(lambda _: False) is None
    assert COUNTS[-1] == 4_096


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"gpu_type": "g80"}, HardwareError, "--gpu-type g80: unknown device; known: v100"),
        ({"gpu_type": "cpu"}, HardwareError, "--gpu-type cpu: the models know GPUs; name one"),
        ({"gpus": 0}, JobError, "--gpus 0: must be at least 1"),
        ({"gpus": -8}, JobError, "--gpus -8: must be at least 1"),
        ({"gpus": 4_097}, HardwareError, "--gpus 4097: must be 1 to 4096"),
        ({"seq_len": 0}, JobError, "--seq-len 0: must be at least 1"),
        ({"nodes": 3}, JobError, "--nodes 3: does not divide 8 GPUs"),
        ({"gpus_per_node": 0}, JobError, "--gpus-per-node 0: must be at least 1"),
        ({"nodes": 2, "gpus_per_node": 4}, JobError, "one implies the other; give one"),
        ({"link": "string"}, HardwareError, "--link string: unknown network; known: ib-edr-100"),
        ({"probe": Path("nowhere.json")}, HardwareError, "--probe nowhere.json: no such file"),
        (
            {"attn_implementation": "foo"},
            WorkloadError,
            "--attn-implementation foo: transformers has no such attention for model_type llama",
        ),
        ({"memory_ceiling": "81GiB"}, HardwareError, "is above the device's 79.11 GiB"),
        ({"memory_ceiling": "80"}, HardwareError, r"GB \(1000\^3 bytes\) or GiB"),
        ({"host_memory": "-1GiB"}, HardwareError, "--host-memory -1GiB: must be more than zero"),
        (
            {"trainable_params": 99_999_999_999_999},
            JobError,
            "--trainable-params 99999999999999: 7b has [0-9]+ parameters; give fewer, or leave",
        ),
        ({"model": "nowhere"}, WorkloadError, "--model nowhere: neither a preset nor"),
        ({"ds_config": Path("nowhere.json")}, ConfigError, "nowhere.json: no such file"),
        ({"ds_config": None}, HardwareError, "give a DS_CONFIG, or --space"),
    ],
)
def test_bad_input_says_where_and_what(
    config: Path, changes: dict[str, Any], kind: type[AutotuneError], message: str
) -> None:
    with pytest.raises(kind, match=message) as raised:
        plan_config(request(**{"ds_config": config} | changes))
    assert raised.value.exit_code == 2
    assert len(raised.value.faults) == 1


def test_a_micro_batch_that_the_global_batch_cannot_hold_is_one_fault(tmp_path: Path) -> None:
    file = tmp_path / "ds_config.json"
    file.write_text(json.dumps(CONFIG | {"train_micro_batch_size_per_gpu": 3}), encoding="utf-8")
    job = (file, "--model", "125m", "--gpus", 8, "--gpu-type", "h100-80gb")
    with pytest.raises(WorkloadError, match="size_per_gpu=3: does not divide the 4 seq") as raised:
        plan_config(request(ds_config=file, global_batch_size=32))
    assert raised.value.exit_code == 2
    assert len(raised.value.faults) == 1
    assert run(*job).exit_code == 0


def test_a_model_config_without_dimensions_names_them(tmp_path: Path, config: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "hidden_size": 64}')
    with pytest.raises(WorkloadError, match="num_hidden_layers is missing") as raised:
        plan_config(request(model=str(tmp_path), ds_config=config))
    assert len(raised.value.faults) == 3


def test_help_explains_the_exit_codes() -> None:
    done = run("--help")
    assert done.exit_code == 0
    assert "Exit code 0" in " ".join(done.stdout.split())


def test_a_model_without_a_hand_written_family_is_planned_by_its_trace(
    tmp_path: Path, config: Path
) -> None:
    shape = {
        "model_type": "qwen3",
        "hidden_size": 256,
        "intermediate_size": 704,
        "num_hidden_layers": 3,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "vocab_size": 4_000,
    }
    (tmp_path / "config.json").write_text(json.dumps(shape))
    result = plan_config(request(model=str(tmp_path), ds_config=config, seq_len=256))
    estimate = estimate_of(result)
    assert estimate.method == "traced"
    assert "model family qwen3" in estimate.unmeasured
    assert result.fits


def test_an_own_device_needs_a_known_network(tmp_path: Path, config: Path) -> None:
    file = tmp_path / "devices.yaml"
    speeds = "bf16_tflops: 100, memory_gb_per_s: 900, host_gb_per_s: 16, network: string"
    file.write_text(f"- {{name: mine, memory: 80GiB, {speeds}}}\n")
    with pytest.raises(HardwareError, match="mine: network string: unknown network; known: ib-edr"):
        plan_config(request(model="125m", ds_config=config, gpu_type="mine", devices=file))


def test_of_an_own_device_without_speeds_memory_alone_is_judged(
    tmp_path: Path, config: Path
) -> None:
    file = tmp_path / "devices.yaml"
    file.write_text("- {name: mine, memory: 80GiB}\n")
    asked = {"model": "125m", "ds_config": config, "seq_len": 512, "devices": file}
    result = plan_config(request(**asked, gpu_type="mine"))
    assert result.answer.answer is Answer.FITS
    assert result.throughput is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ((), "on 16 CPU threads a rank (a fair share of the node's cores, 16 for each rank assume"),
        (("--launcher", "torchrun"), "on 1 CPU thread a rank (set by torchrun)"),
        (("--cpu-threads", 4), "on 4 CPU threads a rank (as given)"),
    ],
)
def test_the_cpu_threads_of_an_offloaded_optimizer_are_printed(
    tmp_path: Path, options: tuple[str | int, ...], text: str
) -> None:
    job = ("--model", "125m", "--gpus", 8, "--gpu-type", "h100-80gb")
    assert text in run(_offloaded(tmp_path), *job, *options).stdout


def test_fewer_cpu_threads_make_a_slower_offloaded_step(tmp_path: Path) -> None:
    file = _offloaded(tmp_path)
    step_s = [
        step_s_of(plan_config(request(ds_config=file, gpus=1, cpu_threads=threads)))
        for threads in (1, 4, 16)
    ]
    assert step_s == sorted(step_s, reverse=True)
    assert step_s[0] > 1.5 * step_s[2]


def test_no_rank_has_0_cpu_threads() -> None:
    with pytest.raises(JobError, match="--cpu-threads 0: must be at least 1"):
        request(ds_config=Path("x"), cpu_threads=0)


def _offloaded(folder: Path) -> Path:
    file = folder / "offloaded.json"
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
        "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
    }
    file.write_text(json.dumps(config), encoding="utf-8")
    return file
