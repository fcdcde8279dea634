import json
import re
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import AutotuneError, HardwareError, JobError, WorkloadError
from autotune.job.ceiling import format_gib
from autotune.planning import PlanRequest, plan_config, plan_scale_out, plan_space, read_counts
from autotune.report.scale_out import print_scale_out_plan
from tests.planning.conftest import CONFIG
from tests.planning.test_plan import request, run

COUNTS = (8, 64, 512)


def _request(**changes: Any) -> PlanRequest:
    return request(**{"model": "1.3b", "gpu_type": "a100-80gb"} | changes)


def test_a_config_on_several_numbers_of_gpus(config: Path) -> None:
    plan = plan_scale_out(_request(ds_config=config), COUNTS, tokens=1e12)
    assert [world.gpus for world in plan.worlds] == list(COUNTS)
    assert plan.fits
    for world in plan.worlds:
        assert world.fits
        assert world.throughput is not None
        seconds = 1e12 / world.throughput.tokens_per_s
        assert world.gpu_hours(1e12) == pytest.approx(seconds * world.gpus / 3600)
        assert 0 <= world.communication_share < 1


def test_of_a_space_the_fastest_that_fits_is_shown(space: Path) -> None:
    plan = plan_scale_out(_request(space=str(space)), COUNTS)
    for world in plan.worlds:
        assert world.fits
        assert world.values is not None
        assert world.training is not None
        assert world.training.zero.stage == world.values["zero_optimization.stage"]


def test_communication_takes_over_where_the_network_is_slow(space: Path) -> None:
    batch = {"space": str(space), "global_batch_size": 512}
    fast, slow = (
        plan_scale_out(_request(**batch, link=link), COUNTS)
        for link in ("ib-ndr-400", "ethernet-10g")
    )
    shares = [world.communication_share for world in slow.worlds]
    assert shares[0] < 0.2 < 0.5 < shares[-1]
    assert fast.communication_takes_over_at != 8
    assert slow.communication_takes_over_at in {64, 512}


def test_a_batch_that_cannot_be_shared_out_is_a_line_of_its_own(config: Path) -> None:
    plan = plan_scale_out(_request(ds_config=config, global_batch_size=128), COUNTS)
    problems = [world.problem for world in plan.worlds]
    assert problems[0] is None
    assert problems[-1] is not None
    assert "512" in problems[-1]
    assert plan.fits
    assert json.dumps(plan.to_json(), allow_nan=False)


def test_a_fault_that_every_number_has_ends_the_call(config: Path) -> None:
    with pytest.raises(WorkloadError, match="--model nowhere"):
        plan_scale_out(_request(ds_config=config, model="nowhere"), COUNTS)
    with pytest.raises(JobError, match=r"--trainable-params 9999999999: 1\.3b has"):
        plan_scale_out(_request(ds_config=config, trainable_params=9_999_999_999), COUNTS)
    with pytest.raises(HardwareError, match="--gpus 8192: must be 1 to 4096"):
        plan_scale_out(_request(ds_config=config), (8, 8192))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"ds_config": Path("missing.json")}, "missing.json: no such file"),
        ({"space": "nope"}, "search space 'nope': neither a known name nor a YAML file"),
        ({"ds_config": Path("stage7.json")}, "zero_optimization.stage=7: must be one of"),
    ],
)
def test_a_file_that_no_number_can_use_ends_the_call_with_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("stage7.json").write_text(json.dumps({"zero_optimization": {"stage": 7}}), "utf-8")
    with pytest.raises(AutotuneError, match=message) as refused:
        plan_scale_out(_request(**asked), COUNTS)
    assert len(refused.value.faults) == 1


def test_errors_of_the_gate_are_printed_for_each_number(tmp_path: Path) -> None:
    file = tmp_path / "ds_config.json"
    hpz = {"stage": 3, "zero_hpz_partition_size": 3}
    file.write_text(json.dumps(CONFIG | {"zero_optimization": hpz}), encoding="utf-8")
    plan = plan_scale_out(_request(ds_config=file), (8, 9))
    refused, fine = (world.to_json(tokens=None)["errors"] for world in plan.worlds)
    assert [error["field"] for error in refused] == ["zero_optimization.zero_hpz_partition_size"]
    assert fine == []
    done = run(file, "--model", "1.3b", "--gpus", "8,9", "--gpu-type", "a100-80gb")
    assert done.stdout.count("GPUs: autotune gate reports an error") == 1
    assert "8 GPUs: autotune gate reports an error: zero_optimization.zero_hpz" in done.stdout


def test_the_fastest_may_be_what_the_closed_form_finds_a_little_too_large() -> None:
    """As `plan --space zero --gpus 8` finds it, by replaying the best of each line."""
    asked = _request(space="zero", gpu_type="a100-40gb", memory_ceiling="40%")
    (world,) = plan_scale_out(asked, (8,)).worlds
    of_one = plan_space(asked)
    assert world.throughput is not None
    fitting = [line.throughput for line in of_one.lines if line.estimate.fits and line.throughput]
    fastest = max(throughput.tokens_per_s for throughput in fitting)
    assert world.throughput.tokens_per_s >= fastest


def test_slow_jobs_have_their_speed_in_whole_tokens(config: Path) -> None:
    done = run(config, "--model", "34b", "--gpus", "1,2", "--gpu-type", "h200", "--tokens", "1e9")
    rows = [line.split() for line in done.stdout.splitlines() if re.match(r" +[12] ", line)]
    speeds = [float(row[7].replace(",", "")) for row in rows]
    assert len(speeds) == 2
    assert all(0 < speed < 1e4 for speed in speeds)


def test_json_has_a_world_per_number(config: Path) -> None:
    done = run(
        config, "--model", "1.3b", "--gpus", "8,64", "--gpu-type", "a100-80gb", "--tokens", "1e12",
        "--json",
    )  # fmt: skip
    assert done.exit_code == 0
    printed = json.loads(done.stdout)
    assert printed["network"] == "ib-hdr-200"
    assert [world["gpus"] for world in printed["worlds"]] == [8, 64]
    for world in printed["worlds"]:
        assert world["gpu_hours"] > 0
        assert world["throughput"]["tflops_per_gpu"] > 0
        assert 0 < world["throughput"]["mfu"] < 1
        assert world["throughput"]["links"] == "catalogue"


def test_the_table_says_where_communication_takes_over(space: Path) -> None:
    done = run(
        "--space", space, "--model", "1.3b", "--gpus", "8,512", "--gpu-type", "a100-80gb",
        "--link", "ethernet-10g", "--global-batch-size", 512, "--tokens", "1e11",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert "communication takes over at 512 GPUs" in done.stdout
    assert "GPU-hours" in done.stdout


def test_nothing_fits_anywhere(config: Path) -> None:
    done = run(config, "--model", "70b", "--gpus", "1,2", "--gpu-type", "t4")
    assert done.exit_code == 1
    assert "1 GPUs: does not fit" in done.stdout


def test_the_table_shows_what_the_verdict_goes_by(tmp_path: Path) -> None:
    """Fragmentation alone takes this config over the ceiling."""
    file = tmp_path / "ds_config.json"
    file.write_text(json.dumps(CONFIG | {"train_micro_batch_size_per_gpu": 4}), encoding="utf-8")
    ceiling = {"memory_ceiling": "66GiB", "activation_checkpointing": False}
    asked = request(ds_config=file, seq_len=2_048, **ceiling)
    here, there = plan_scale_out(asked, (8, 64)).worlds
    alone = plan_config(asked)
    assert here.estimate == alone.estimate
    assert not here.fits
    assert there.fits
    assert here.estimate is not None
    device = here.estimate.device
    assert device.ceiling_bytes is not None
    allocated = device.peak_allocated_bytes + device.outside_bytes
    assert device.limit_bytes is not None
    assert allocated < device.ceiling_bytes < device.limit_bytes + device.outside_bytes
    done = run(
        file, "--model", "7b", "--gpus", "8,64", "--gpu-type", "h100-80gb", "--seq-len", 2_048,
        "--memory-ceiling", "66GiB", "--no-activation-checkpointing",
    )  # fmt: skip
    assert done.exit_code == 0
    assert re.search(r"^ +8 .* no +68 ", done.stdout, flags=re.MULTILINE)
    needed = format_gib(device.needed_bytes)
    assert f"8 GPUs: does not fit: a rank needs {needed} of 66.00 GiB\n" in done.stdout


def test_a_host_that_does_not_suffice_is_named(tmp_path: Path) -> None:
    file = tmp_path / "ds_config.json"
    offload = {"stage": 3, "offload_optimizer": {"device": "cpu"}}
    file.write_text(json.dumps(CONFIG | {"zero_optimization": offload}), encoding="utf-8")
    done = run(
        file, "--model", "7b", "--gpus", "8,64", "--gpu-type", "h100-80gb",
        "--host-memory", "64GiB",
    )  # fmt: skip
    assert "8 GPUs: does not fit: the ranks of a node need" in done.stdout
    assert " of 64.00 GiB of host memory\n" in done.stdout


def test_a_probe_takes_the_catalogue_s_place(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"kind": kind, "num_bytes": size, "ranks": list(range(8)), "s": 1.0}
        for kind in ("all_gather", "reduce_scatter", "all_reduce")
        for size in (1 << 20, 1 << 30)
    ]
    file = tmp_path / "probe.json"
    header = {"format": 1, "device": "NVIDIA A100-SXM4-80GB", "world_size": 8, "local_ranks": 8}
    file.write_text(json.dumps(header | {"collectives": rows}))
    request = _request(ds_config=config, probe=file)
    plan = plan_scale_out(request, (8,))
    assert plan.communication_takes_over_at == 8
    assert plan.to_json()["worlds"][0]["throughput"]["links"] == "probe"
    print_scale_out_plan(plan_scale_out(request, (8, 64)))
    printed = capsys.readouterr().out
    assert "8 GPUs: links by probe\n" in printed
    assert "64 GPUs: links by probe (within a node; the catalogue between nodes)\n" in printed
    file.write_text(json.dumps(header | {"collectives": rows, "device": "cpu"}))
    again = _request(ds_config=config, probe=file)
    with pytest.raises(HardwareError, match="measured on cpu, and the job runs on a100-80gb"):
        plan_scale_out(again, (8, 64))


def test_the_last_link_wins_only_between_nodes(config: Path) -> None:
    speeds = []
    for per_node in (8, 4):
        request = _request(ds_config=config, gpus_per_node=per_node, link="ethernet-10g")
        throughput = plan_scale_out(request, (8,)).worlds[0].throughput
        assert throughput is not None
        speeds.append(throughput.tokens_per_s)
    assert speeds[0] > 2 * speeds[1]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("eight", {}, "--gpus eight: must be a whole number, or several such as 8,64,512"),
        ("8,", {}, "--gpus 8,: must be a whole number"),
        ("8,64", {"nodes": 2}, "--nodes 2: goes with one number of GPUs; use --gpus-per-node"),
        ("8", {"tokens": 1e9}, "--tokens 1e.09: goes with several numbers of GPUs"),
        ("8,64", {"tokens": -1.0}, "--tokens -1: must be above 0"),
    ],
)
def test_bad_numbers_say_what_is_wrong(text: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(HardwareError, match=message):
        read_counts(text, **options)
