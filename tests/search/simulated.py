"""GPU studies without a GPU: the truth is the memory model's own prediction, bent."""

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autotune.evaluate import TrialRequest
from autotune.job.device import Device, find_device
from autotune.job.model_shape import load_model_shape
from autotune.job.workload import Workload
from autotune.predict.memory.estimate import DeviceEstimate
from autotune.predict.memory.predict import Surroundings, predict_memory
from autotune.predict.program.items import Part
from autotune.predict.throughput import SpeedSurroundings
from autotune.predict.training_job import ModelSettings, read_training
from autotune.search.budget import Budget
from autotune.search.loop import Search
from autotune.search.memory_screen import Screen
from autotune.search.progress import Silent
from autotune.search.speed_model import SpeedModel
from autotune.space import SearchSpace, load_space
from autotune.space.proposal import Scalar
from autotune.study.candidate import Candidate, candidate_of_proposal
from autotune.study.folder import open_study
from autotune.study.outcome import Outcome, Phase, PhaseMemory, Status
from autotune.study.store import StoredStudy
from autotune.study.view import StudySetup, StudyView
from autotune.tune import TuneResult, run_study
from autotune.tune.scale_up import Target
from tests.asked import tune_request
from tests.evaluate.fake import FakeEvaluator
from tests.job.workloads import resolve_workload

H100 = find_device("h100-80gb")
ZERO = load_space("zero")


def workload_7b(*, num_layers: int = 32, base: Mapping[str, Any] | None = None) -> Workload:
    """Return the 7b workload on 8 ranks; with fewer layers a replay takes a few milliseconds."""
    shape = load_model_shape("7b")
    return resolve_workload(
        replace(
            shape,
            num_hidden_layers=num_layers,
            hf_config={**shape.hf_config, "num_hidden_layers": num_layers},
        ),
        gpus=8,
        base=base or {},
        device_kind="cuda",
    )


@dataclass(slots=True, kw_only=True)
class Simulation:
    """A workload, its ceiling, and what its trials really need."""

    workload: Workload
    ceiling_bytes: int
    base: Mapping[str, Any] = field(default_factory=dict)
    device: Device = H100
    space: SearchSpace = ZERO
    bias: float = 0.0
    """Relative: the true need is always this much more than the prediction."""
    noise: float = 0.0
    """Relative: it is off by at most this much more, each config by its own."""
    wrong: Callable[[TrialRequest], Outcome | None] = lambda _: None
    """May decide an outcome before the simulation does."""
    predicted: dict[str, DeviceEstimate] = field(default_factory=dict)
    """By config, to save replays; may be shared between simulations of one workload."""

    def __post_init__(self) -> None:
        self.space = self.space.bind(self.workload, self.base)

    def screen(self) -> Screen:
        return Screen(
            workload=self.workload,
            device=self.device,
            ceiling_bytes=self.ceiling_bytes,
            # The simulated truth is a sum of tensors: nothing fragments.
            expandable_segments=True,
        )

    def speed(self) -> SpeedModel:
        return SpeedModel(
            workload=self.workload,
            surroundings=SpeedSurroundings.of(self.device, local_ranks=self.workload.world_size),
        )

    def point(self, **values: Scalar) -> Candidate:
        """Return a candidate; keys of `zero_optimization` by name, `mb` and `ckpt` beside them."""
        short = {
            "mb": "train_micro_batch_size_per_gpu",
            "ckpt": "model.activation_checkpointing",
            "offload": "zero_optimization.offload_optimizer.device",
        }
        named = {short.get(k, f"zero_optimization.{k}"): v for k, v in values.items()}
        return candidate_of_proposal(
            self.space.canonical(named),
            self.space,
            base=self.base,
            workload=self.workload,
        )

    def estimate(self, candidate: Candidate) -> DeviceEstimate:
        """Return the model's prediction."""
        settings = dict(candidate.model_settings)
        key = json.dumps([candidate.ds_config, settings], sort_keys=True)
        if key not in self.predicted:
            training = read_training(
                candidate.ds_config,
                self.workload,
                ModelSettings(
                    activation_checkpointing=bool(settings["activation_checkpointing"]),
                    attn_implementation=str(settings["attn_implementation"]),
                ),
            )
            self.predicted[key] = predict_memory(training, Surroundings(device=self.device)).device
        return self.predicted[key]

    def true_allocated_bytes(self, candidate: Candidate) -> int:
        key = json.dumps([candidate.ds_config, dict(candidate.model_settings)], sort_keys=True)
        noise = self.noise * random.Random(key).uniform(-1, 1)
        return round(self.estimate(candidate).peak_allocated_bytes * (1 + self.bias) * (1 + noise))

    def true_bytes(self, candidate: Candidate) -> int:
        return self.true_allocated_bytes(candidate) + self.estimate(candidate).outside_bytes

    def fits(self, candidate: Candidate) -> bool:
        return self.true_bytes(candidate) <= self.ceiling_bytes

    def outcome(self, candidate: Candidate, request: TrialRequest | None = None) -> Outcome:
        """Return what becomes of a trial."""
        evaluator = FakeEvaluator(workload=self.workload, ceiling_bytes=self.ceiling_bytes)
        estimate, needed = self.estimate(candidate), self.true_bytes(candidate)
        if needed > self.ceiling_bytes:
            phase = Phase.INIT if estimate.part == Part.INIT.value else Phase.FIRST_STEP
            return evaluator.failed(Status.OVER_CEILING, "as if", phase=phase, needed_bytes=needed)
        request = request or TrialRequest(
            number=0,
            label="as-if",
            ds_config=candidate.ds_config,
            model_settings=candidate.model_settings,
        )
        measurement = evaluator._measure(request, needed)
        memory = PhaseMemory(
            phase=Phase.STEADY,
            used_bytes=needed,
            allocated_bytes=self.true_allocated_bytes(candidate),
            reserved_bytes=self.true_allocated_bytes(candidate),
        )
        ranks = tuple(replace(rank, memory=(memory,)) for rank in measurement.ranks)
        return Outcome(
            status=Status.COMPLETE,
            evaluator="measured",
            measurement=replace(measurement, ranks=ranks),
            duration_s=1.0,
        )

    def evaluator(self) -> FakeEvaluator:
        def override(request: TrialRequest) -> Outcome | None:
            candidate = Candidate(
                source="", ds_config=request.ds_config, model_settings=request.model_settings
            )
            return self.wrong(request) or self.outcome(candidate, request)

        return FakeEvaluator(
            workload=self.workload, ceiling_bytes=self.ceiling_bytes, override=override
        )

    def setup(self, seed: int) -> StudySetup:
        return StudySetup(
            workload=self.workload,
            space=self.space,
            base=self.base,
            device_kind="cuda",
            ceiling_bytes=self.ceiling_bytes,
            evaluator="measured",
            seed=seed,
            environment={"autotune": "as if"},
        )

    def search(self, *, trials: int, screened: bool, seed: int) -> StudyView:
        """Search in memory, and stop there."""
        stored = StoredStudy("s", "sqlite:///:memory:", create=True)
        stored.set_attribute("setup", self.setup(seed).to_json())
        Search(
            study=stored,
            evaluator=self.evaluator(),
            space=self.space,
            workload=self.workload,
            base=self.base,
            ceiling_bytes=self.ceiling_bytes,
            seed=seed,
            budget=Budget(max_trials=trials),
            progress=Silent(),
            screen=self.screen() if screened else None,
        ).run()
        view = StudyView.of(stored)
        stored.close()
        return view

    def run(
        self,
        folder: Path,
        *,
        trials: int,
        screened: bool = True,
        predicting: bool = False,
        target: Target | None = None,
        resume: bool = False,
        on_disk: bool = False,
        seed: int = 1,
    ) -> TuneResult:
        """Search, confirm and export, as `autotune run` does."""
        # SQLite waits for the disk 18 times a trial.
        url = f"sqlite:///{folder / 'study.db' if on_disk else ':memory:'}"
        opened = open_study(folder, url, self.setup(seed), resume=resume)
        try:
            return run_study(
                opened,
                self.evaluator(),
                folder,
                request=tune_request(model="7b", gpus=8, trials=trials, confirm_rounds=2),
                progress=Silent(),
                screen=self.screen() if screened else None,
                speed=self.speed() if predicting else None,
                target=target,
            )
        finally:
            opened.stored.close()


def launched(study: StudyView) -> list[Candidate]:
    """Return what was launched, in order."""
    return [record.candidate for record in study.records if not record.interrupted]


def reopened(folder: Path) -> StudyView:
    stored = StoredStudy(folder.name, f"sqlite:///{folder / 'study.db'}", create=False)
    try:
        return StudyView.of(stored)
    finally:
        stored.close()
