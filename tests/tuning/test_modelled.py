"""`run --evaluator modelled` from end to end: nothing runs, and nothing says that anything did."""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from autotune.errors import GateError, HardwareError, NotJudgedError, StoreError
from autotune.export import write_study_files
from autotune.gating.baseline.measure import measure
from autotune.gating.baseline.record import read_record
from autotune.job.launcher import Launcher
from autotune.lint.subject import Launch, Subject
from autotune.replay.landscape import Landscape
from autotune.search.progress import Silent
from autotune.study.constraint import constraints_of
from autotune.study.outcome import Status
from autotune.study.store import StoredStudy
from autotune.study.view import StudyView
from autotune.tuning import TuneRequest, tune
from tests.asked import tune_request

_SCRIPT = """
import json, sys
from autotune.cli.main import app
app(sys.argv[1:], standalone_mode=False)
heavy = ("torch", "ray", "deepspeed", "transformers")
print(json.dumps([name for name in heavy if name in sys.modules]), file=sys.stderr)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A study that has ended."""

    folder: Path
    request: TuneRequest
    """To call again."""
    out: str
    loaded: list[str]

    @property
    def record(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.folder / "record.json").read_text("utf-8"))
        return loaded

    def view(self) -> StudyView:
        url = f"sqlite:///{self.folder / 'study.db'}"
        stored = StoredStudy(self.folder.name, url, create=False)
        try:
            return StudyView.of(stored)
        finally:
            stored.close()


def _with_job(request: TuneRequest, **options: Any) -> TuneRequest:
    """Return the request with options of its job changed."""
    return replace(request, job=replace(request.job, **options))


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    home = tmp_path_factory.mktemp("modelled")
    arguments = ["--model", "7b", "--gpus", "64", "--gpu-type", "h100-80gb"]
    arguments += ["--trials", "30", "--seed", "1", "--study", "m"]
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, "run", "--evaluator", "modelled", *arguments],
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Ended(
        folder=home / "studies" / "m",
        request=tune_request(
            model="7b",
            gpus=64,
            evaluator="modelled",
            gpu_type="h100-80gb",
            trials=30,
            seed=1,
            study="m",
            studies_folder=home / "studies",
        ),
        out=done.stdout,
        loaded=json.loads(done.stderr.splitlines()[-1]),
    )


def test_it_needs_neither_torch_nor_a_pool(ended: Ended) -> None:
    assert ended.loaded == []


def test_its_record_says_that_nothing_ran(ended: Ended) -> None:
    record = ended.record
    assert record["evaluator"] == "modelled"
    assert "nothing ran" in record["not_shown"][0]
    assert record["modelling"]["gpu_type"] == "h100-80gb"
    assert record["modelling"]["gpus_per_node"] == 8
    assert record["modelling"]["communication"] == "catalogue"
    assert record["emulation"] is None
    assert record["num_runs"] == 1
    assert record["memory"]["ranks"] == []
    assert record["environment"]["devices"] == []
    assert not record["losses"]["compared"]
    speed = record["tokens_per_s"]
    assert speed["low"] < speed["value"] < speed["high"]


def test_what_it_prints_is_called_predicted(ended: Ended) -> None:
    assert "predicted, modelled: nothing ran" in ended.out
    assert "the model's 90 %" in ended.out
    for word in ("measured,", "emulated", "whole optimizer steps", "95 %", "plays one rank"):
        assert word not in ended.out


def test_it_runs_the_requested_number_of_trials(ended: Ended) -> None:
    view = ended.view()
    assert len(view.records) == 30
    assert {"complete", "rejected"} <= view.counts.keys()
    assert all(r.outcome and r.outcome.measurement is None for r in view.records)
    assert view.screen is None
    assert view.speed is None


def test_what_does_not_fit_is_infeasible_to_the_sampler(ended: Ended) -> None:
    view = ended.view()
    ceiling_bytes = view.setup.ceiling_bytes
    for record in view.records:
        assert record.outcome is not None
        found = constraints_of(record.outcome, ceiling_bytes=ceiling_bytes)
        if record.outcome.status is Status.REJECTED:
            assert found["memory"] > 0
        elif record.outcome.status in (Status.COMPLETE, Status.SLOW):
            assert found["memory"] <= 0


def test_what_is_exported_is_the_best_or_the_baseline(ended: Ended) -> None:
    record, view = ended.record, ended.view()
    ds_config = json.loads((ended.folder / "ds_config.json").read_text("utf-8"))
    assert ds_config == record["ds_config"]
    assert ds_config["train_batch_size"] == 64 * 32
    [confirmation] = view.confirmations
    assert len(confirmation.winner_runs) == len(confirmation.baseline_runs) == 1
    ratio = confirmation.ratio
    assert ratio is not None
    assert ratio.low < ratio.mean < ratio.high < 2 * ratio.mean
    assert record["keeps_baseline"] == (ratio.low <= 1)


def test_its_table_has_the_predictions(ended: Ended) -> None:
    table = pd.read_csv(ended.folder / "trials.csv")
    assert set(table["evaluator"]) == {"modelled"}
    complete = table[table["status"] == "complete"]
    assert (complete["tokens_per_s"] > 0).all()
    assert (complete["peak_bytes"] <= ended.view().setup.ceiling_bytes).all()
    assert complete["boundary_s"].isna().all()


def test_it_can_be_exported_again(ended: Ended, tmp_path: Path) -> None:
    assert write_study_files(ended.view(), tmp_path) == ended.record


def test_it_can_be_replayed(ended: Ended) -> None:
    landscape = Landscape.of(ended.view())
    assert len(landscape.trials) == 30
    assert landscape.best_tokens_per_s > 0


def test_it_is_resumed_for_the_same_job_only(ended: Ended, tmp_path: Path) -> None:
    shutil.copytree(ended.folder, tmp_path / "m")
    again = replace(ended.request, resume=True, studies_folder=tmp_path)
    for other, fault in (
        (_with_job(again, gpu_type="h200"), "--gpu-type is h200, the study's is h100-80gb"),
        (_with_job(again, link="ethernet-100g"), "--link is ethernet-100g, .* ib-ndr-400"),
        (_with_job(again, gpus_per_node=4), "--gpus-per-node is 4, the study's is 8"),
        (
            _with_job(again, host_memory="4096GiB"),
            "--host-memory is 4096.00 GiB, the study's is not given",
        ),
        (
            _with_job(again, launcher=Launcher.TORCHRUN),
            r"a rank's CPU threads are 1, the study's are 16 \(--cpu-threads 16\)",
        ),
    ):
        with pytest.raises(StoreError, match=fault):
            tune(other, Silent())
    # `auto` continues with the evaluator of the study.
    plain = replace(_with_job(again, gpu_type=None), evaluator="auto", trials=32)
    result = tune(plain, Silent())
    assert len(result.study.records) == 32
    assert result.record is not None
    assert result.record["evaluator"] == "modelled"
    assert len(result.study.confirmations) >= 1


def test_it_is_resumed_with_the_same_probe_only(ended: Ended, tmp_path: Path) -> None:
    probes = []
    for name, seconds in (("one", 1e-3), ("other", 1e-2)):
        rows = [
            {"kind": kind, "num_bytes": 1 << 26, "ranks": list(range(8)), "s": seconds}
            for kind in ("all_gather", "reduce_scatter", "all_reduce")
        ]
        header = {"format": 1, "device": "h100-80gb", "world_size": 8, "local_ranks": 8}
        probes.append(tmp_path / f"{name}.json")
        probes[-1].write_text(json.dumps(header | {"collectives": rows}), encoding="utf-8")
    here = _with_job(ended.request, gpus=8, probe=probes[0])
    here = replace(here, trials=4, study="p", resume=False, studies_folder=tmp_path)
    assert tune(here, Silent()).study.setup.communication == "probe"
    tune(replace(here, resume=True), Silent())
    with pytest.raises(StoreError, match="--resume p: --probe differs from the study's"):
        tune(replace(_with_job(here, probe=probes[1]), resume=True), Silent())
    # The probe has no times between nodes.
    wide = tune(replace(_with_job(here, gpus=64), study="w"), Silent())
    assert wide.study.setup.communication == "probe (within a node; the catalogue between nodes)"


def test_the_gate_does_not_measure_against_it(ended: Ended) -> None:
    record = read_record(ended.folder / "record.json")
    subject = Subject(config=record.ds_config, launch=Launch(gpus=64))
    with pytest.raises(GateError, match="are modelled, nothing was run for them"):
        measure(subject, record)


def test_a_device_without_speeds_is_refused(tmp_path: Path) -> None:
    devices = tmp_path / "devices.yaml"
    devices.write_text("- {name: mine, memory: 64GiB}\n", encoding="utf-8")
    request = tune_request(
        model="7b",
        gpus=8,
        evaluator="modelled",
        gpu_type="mine",
        devices=devices,
        studies_folder=tmp_path / "studies",
    )
    with pytest.raises(HardwareError, match="mine: its speed cannot be predicted without bf16"):
        tune(request, Silent())
    assert not (tmp_path / "studies").exists()


def test_a_model_that_cannot_be_predicted_is_refused_and_begins_no_study(tmp_path: Path) -> None:
    model = tmp_path / "t5.json"
    shape = {"model_type": "t5", "d_model": 64, "num_layers": 2, "num_heads": 2, "d_ff": 128}
    model.write_text(json.dumps(shape | {"d_kv": 32, "vocab_size": 512}), encoding="utf-8")
    request = tune_request(
        model=str(model),
        gpus=8,
        evaluator="modelled",
        gpu_type="h100-80gb",
        studies_folder=tmp_path / "studies",
    )
    with pytest.raises(NotJudgedError, match="is an encoder-decoder model"):
        tune(request, Silent())
    assert not (tmp_path / "studies").exists()


def test_an_accelerate_yaml_is_a_base_and_names_the_launcher_and_its_threads(
    tmp_path: Path,
) -> None:
    base = tmp_path / "accelerate.yaml"
    base.write_text(
        """distributed_type: DEEPSPEED
mixed_precision: bf16
num_processes: 8
num_cpu_threads_per_process: 4
deepspeed_config: {zero_stage: 2, gradient_accumulation_steps: 8}
""",
        encoding="utf-8",
    )
    request = tune_request(
        model="125m",
        gpus=8,
        gpu_type="a100-40gb",
        seq_len=512,
        base=base,
        evaluator="modelled",
        trials=2,
        studies_folder=tmp_path / "studies",
    )
    result = tune(request, Silent())
    first = result.study.records[0].candidate
    assert (first.source, first.ds_config["zero_optimization"]["stage"]) == ("base", 2)
    record = result.record
    assert record is not None
    assert record["job"]["launcher"]["value"] == "accelerate"
    assert record["job"]["cpu_threads"] == {"value": 4, "origin": "ds_config"}
