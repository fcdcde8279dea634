"""Real ranks that share one card, over gloo, against one that plays one of as many.

One CUDA device with 80 GB or more, nobody else on it; two minutes at most.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from autotune.job.model_shape import shape_from_hf_config
from autotune.pool.slot import _parent_environment
from autotune.predict.memory.predict import peak_rank
from autotune.predict.training_job import ModelSettings, read_training
from autotune.study.outcome import Phase, RankMeasurement
from autotune.trial.spec import Emulation, StepRule, TrialSpec
from tests.job.workloads import resolve_workload
from tests.predict.rows import H200

pytestmark = pytest.mark.gpu

MakeSpec = Callable[..., TrialSpec]
STAGES, WORLDS = (1, 2, 3), (2, 4)
TOLERANCE = 0.01
# Wide layers as in a 1B model, few of them: four ranks have to fit on one card.
MODEL: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 2_048,
    "intermediate_size": 5_504,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "vocab_size": 32_000,
    "max_position_embeddings": 4_096,
    "tie_word_embeddings": False,
}


class SharedCard:
    """The process whose forks are the ranks."""

    def __init__(self, device_kind: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.shared_card", device_kind, "llama"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | _parent_environment(device_kind),
        )

    def run(self, *specs: TrialSpec) -> list[list[RankMeasurement]]:
        """Run trials side by side; return each one's ranks."""
        jobs = [
            {
                "spec": spec.to_json(),
                "num_processes": 1 if spec.emulation else world_size_of(spec),
            }
            for spec in specs
        ]
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(jobs) + "\n")
        self._process.stdin.flush()
        results = json.loads(self._process.stdout.readline())
        failed = [said for group in results for said in group if isinstance(said, str)]
        assert not failed, failed
        return [[RankMeasurement.from_json(said) for said in group] for group in results]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


def world_size_of(spec: TrialSpec) -> int:
    config = spec.ds_config
    micro_steps = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"]
    return int(config["train_batch_size"]) // int(micro_steps)


def real_trial(make_spec: MakeSpec, *, stage: int, world: int, **fields: Any) -> TrialSpec:
    values = {
        "zero_optimization.stage": stage,
        "zero_optimization.reduce_bucket_size": 50_000_000,
        "train_micro_batch_size_per_gpu": 2,
    }
    defaults: dict[str, Any] = {
        "label": f"stage-{stage}-real-{world}",
        "hf_config": MODEL,
        "seq_len": 2_048,
        "device_kind": "cuda",
        "ceiling_bytes": 1 << 40,
        "num_threads": 2,
        "steps": StepRule(min_steps=2, max_steps=2),
        "hang_timeouts_s": dict.fromkeys(Phase, 120.0),
    }
    return make_spec(values, gpus=world, global_batch_size=2 * world, **defaults | fields)


def emulated(spec: TrialSpec) -> TrialSpec:
    world = world_size_of(spec)
    return replace(
        spec,
        label=spec.label.replace("real", "emulated"),
        emulation=Emulation(
            rank=played_rank(spec),
            world_size=world,
            local_world_size=world,
            host_bytes=1 << 40,
        ),
    )


def played_rank(spec: TrialSpec) -> int:
    """Return the rank that the emulated evaluator would play: the one that holds the most."""
    workload = resolve_workload(
        shape_from_hf_config(dict(spec.hf_config), name="model", where="model"),
        gpus=world_size_of(spec),
        base={},
        seq_len=spec.seq_len,
        global_batch_size=int(spec.ds_config["train_batch_size"]),
    )
    return peak_rank(read_training(spec.ds_config, workload, ModelSettings()), H200)


def peaks(rank: RankMeasurement) -> Mapping[Phase, int]:
    """Return the most that live tensors took, by phase."""
    return {m.phase: m.allocated_bytes or 0 for m in rank.memory}


@pytest.fixture(scope="module")
def card() -> Iterator[SharedCard]:
    card = SharedCard("cuda")
    yield card
    card.close()


@pytest.fixture(scope="module")
def pairs(
    card: SharedCard, make_spec: MakeSpec
) -> Callable[[int], Mapping[int, tuple[RankMeasurement, RankMeasurement]]]:
    """Return a function that gives, by world, the real rank that holds the most and the played one.

    All worlds run side by side.
    """

    @cache
    def of_stage(stage: int) -> Mapping[int, tuple[RankMeasurement, RankMeasurement]]:
        real = [real_trial(make_spec, stage=stage, world=world) for world in WORLDS]
        measured = card.run(*real, *map(emulated, real))
        return {
            world: (
                max(measured[i], key=lambda rank: max(peaks(rank).values())),
                measured[i + len(WORLDS)][0],
            )
            for i, world in enumerate(WORLDS)
        }

    return of_stage


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("stage", STAGES)
def test_an_emulated_rank_allocates_what_a_real_one_does(
    pairs: Callable[[int], Mapping[int, tuple[RankMeasurement, RankMeasurement]]],
    stage: int,
    world: int,
) -> None:
    real, alone = map(peaks, pairs(stage)[world])
    sys.stdout.write(f"stage {stage}, world {world}: real {real}, emulated {alone}\n")
    assert max(real.values()) > 1 << 30
    assert max(alone.values()) == pytest.approx(max(real.values()), rel=TOLERANCE)


@pytest.mark.parametrize(
    ("world", "precision", "zero"),
    [
        pytest.param(1024, "bf16", {"stage": 3}, id="1024 ranks"),
        pytest.param(64, "bf16", {"stage": 3, "zero_hpz_partition_size": 8}, id="hpZ"),
        pytest.param(16, "bf16", {"stage": 3, "zero_quantized_gradients": True}, id="qgZ"),
        pytest.param(16, "bf16", {"stage": 3, "zero_quantized_weights": True}, id="qwZ"),
        pytest.param(8, "fp16", {"stage": 0}, id="fp16, stage 0"),
        pytest.param(8, "fp16", {"stage": 2}, id="fp16, stage 2"),
        pytest.param(8, "fp16", {"stage": 3}, id="fp16, stage 3"),
        pytest.param(
            8,
            "bf16",
            {
                "stage": 3,
                "offload_optimizer": {"device": "cpu"},
                "offload_param": {"device": "cpu"},
            },
            id="all offloaded",
        ),
    ],
)
def test_what_has_no_real_ranks_to_compare_with_runs(
    card: SharedCard, make_spec: MakeSpec, world: int, precision: str, zero: dict[str, Any]
) -> None:
    """Quantization compiles an op first, a minute or two if nobody has yet."""
    spec = real_trial(make_spec, stage=3, world=world)
    config = {key: value for key, value in spec.ds_config.items() if key != "bf16"}
    config |= {precision: {"enabled": True}, "zero_optimization": zero}
    alone = replace(
        spec,
        label="alone",
        precision=precision,
        ds_config=config,
        emulation=Emulation(world_size=world, local_world_size=8, host_bytes=1 << 40),
    )
    ((rank,),) = card.run(alone)
    assert len(rank.boundary_s) == alone.steps.max_steps
    assert peaks(rank)[Phase.STEADY] > 1 << 30
