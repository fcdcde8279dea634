import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autotune.gating.fit.memory import memory_findings
from autotune.gating.gate import gate
from autotune.job.launcher import Launcher
from autotune.job.model_shape import ModelShape, shape_from_hf_config
from autotune.job.resolve import resolve_job
from autotune.lint.finding import Severity, Verdict
from autotune.lint.subject import Subject
from autotune.planning import plan_config
from autotune.planning.memory_answer import judge_memory
from autotune.predict.memory.fit import Answer
from tests.asked import gate_request, plan_request
from tests.gating.judging import Judgement, config, fields, judge, verdict
from tests.lint.cases import Case, all_cases, errors, is_about, request_of
from tests.lint.mutations import mutated
from tests.predict.jobs import small_llama
from tests.predict.traced import COMMON

CASES = [case for case in all_cases() if case.case_file["category"] in ("memory", "speed")]
OFFLOAD: dict[str, Any] = {"offload_optimizer": {"device": "cpu"}}
FULL_OFFLOAD: dict[str, Any] = {**OFFLOAD, "offload_param": {"device": "cpu"}}


def judged(case: Case, scratch: Path) -> Judgement:
    read = json.loads(case.ds_config.read_text(encoding="utf-8"))
    job = resolve_job(request_of(case, scratch).job, subject=Subject(config=read))
    answer = judge_memory(job)
    return Judgement(answer=answer, findings=tuple(memory_findings(job.subject, answer)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.folder.name)
def test_a_case_gets_its_verdict_and_fields(case: Case, tmp_path: Path) -> None:
    judgement = judged(case, tmp_path)
    found = judgement.findings
    assert verdict(judgement) in case.verdicts, found
    at_fault = case.expected["fields"]
    if verdict(judgement) is not Verdict.OK and at_fault:
        missed = [k for k in at_fault if not any(is_about(finding, k) for finding in found)]
        assert missed == [], found
    elsewhere = [f for f in errors(found) if not any(is_about(f, k) for k in at_fault)]
    assert elsewhere == []


def test_memory_is_what_plan_prints(tmp_path: Path) -> None:
    ds_config = config(2, micro=2)
    file = tmp_path / "ds_config.json"
    file.write_text(json.dumps(ds_config), encoding="utf-8")
    request = plan_request(
        model="7b",
        gpus=8,
        gpu_type="a100-80gb",
        ds_config=file,
        seq_len=2_048,
        activation_checkpointing=False,
    )
    planned = plan_config(request).to_json()["memory"]
    memory = judge(ds_config, activation_checkpointing=False).memory
    assert memory is not None
    assert (memory["answer"], memory["assumed"]) == ("fits", [])
    for key in ("answer", "odds", "near_edge", "assumed", "host"):
        assert memory[key] == planned[key]
    # The gate does not look for the smallest limit.
    unlike = ("limit_bytes", "needed_bytes")
    device = {k: v for k, v in memory["device"].items() if k not in unlike}
    assert device == {k: v for k, v in planned["device"].items() if k not in unlike}


def test_a_finding_has_prediction_and_available_memory() -> None:
    (finding,) = judge(config(3), device="a100-40gb", gpus=1).findings
    assert (finding.rule, finding.severity) == ("device-memory", Severity.ERROR)
    assert finding.message.startswith(
        "zero_optimization.offload_optimizer: device memory does not suffice even with activation "
        "checkpointing: predicted 1"
    )
    assert "a100-40gb has 39.4 GiB; most is moments 50.2, master weights 25.1" in finding.message


def test_unknown_checkpointing_is_an_error_only_if_it_does_not_help() -> None:
    """1.3B on a T4: too much at any setting; 7B at stage 3: only the activations are."""
    assert verdict(judge(config(1), model="1.3b", device="t4", gpus=1)) is Verdict.ERROR
    wide = config(3, micro=16)
    assert verdict(judge(wide, activation_checkpointing=True)) is Verdict.OK
    assert verdict(judge(wide, activation_checkpointing=False)) is Verdict.ERROR
    unknown = judge(wide)
    assert verdict(unknown) is Verdict.WARNING
    assert fields(unknown) == ["train_micro_batch_size_per_gpu"]
    assert "fits only with activation checkpointing (predicted " in unknown.findings[0].message


def test_the_odds_fall_as_the_card_shrinks() -> None:
    """Cards that grow step by step: an error, then a warning near the edge, then nothing."""
    judgements = [
        judge(
            config(2),
            gpu_memory=f"{tenths / 10}GiB",
            device=None,
            activation_checkpointing=True,
            memory_ceiling="100%",
        )
        for tenths in range(300, 400, 4)
    ]
    odds = [judgement.answer.odds for judgement in judgements]
    assert odds == sorted(odds, key=lambda chance: chance or 0)
    found = [verdict(judgement) for judgement in judgements]
    assert set(found) == set(Verdict)
    near = [judgement for judgement in judgements if judgement.answer.is_near_edge]
    assert any(
        "near the edge: the odds that it runs are about" in j.findings[0].message for j in near
    )


def test_the_place_of_trained_parameters_is_open_too() -> None:
    """TensorAuto/OpenTau#429: a frozen 33B, of which 0.91B are trained."""
    frozen: dict[str, Any] = {"model": 34.3e9, "trainable_params": 910_000_000, "seq_len": 201}
    message = judge(config(2, micro=28), **frozen).findings[0].message
    assert "fits only with the trained parameters on top of the frozen ones (predicted " in message
    assert "); with adapters in every layer and with activation checkpointing: " in message
    assert verdict(judge(config(2), device="a100-40gb", **frozen)) is Verdict.ERROR


def test_checkpoints_on_the_host_are_not_certain_to_need_memory() -> None:
    wide = config(3, micro=64)
    options: dict[str, Any] = {"activation_checkpointing": True, "model": "13b"}
    assert verdict(judge(wide, **options)) is Verdict.ERROR
    away = wide | {"activation_checkpointing": {"cpu_checkpointing": True}}
    assert verdict(judge(away, **options)) is Verdict.WARNING


def test_two_copies_of_the_weights_need_not_fit() -> None:
    """13B with its optimizer on the host: 24 GiB of weights on a card of 39."""
    options: dict[str, Any] = {"model": "13b", "device": "a100-40gb"}
    judgement = judge(config(2, **OFFLOAD), activation_checkpointing=True, **options)
    assert verdict(judgement) is Verdict.OK


def test_of_an_assumed_shape_only_the_states_are_certain() -> None:
    """All activations of a 7B: too many for its real shape, perhaps for another one."""
    wide = config(3, micro=7)
    options: dict[str, Any] = {"gpus": 8, "activation_checkpointing": False}
    assert verdict(judge(wide, model="7b", **options)) is Verdict.ERROR
    assumed = judge(wide, model=6.74e9, **options)
    assert verdict(assumed) is Verdict.WARNING
    assert assumed.memory is not None
    assert assumed.memory["answer"] == "not_judged"
    assert assumed.memory["assumed"] == ["a LLaMA-like shape of 6.74e+09 parameters"]


@pytest.mark.parametrize(
    ("launch", "named"),
    [
        ({"gpus": None}, "--gpus"),
        ({"tensor_parallel": 3}, "8 GPUs are not a multiple of 3"),
        ({"pipeline_stages": 16}, "8 GPUs are not a multiple of 16"),
    ],
)
def test_a_job_with_missing_or_contradictory_facts_is_not_judged(
    launch: dict[str, Any], named: str
) -> None:
    judgement = judge(config(2), **launch)
    assert (judgement.findings, judgement.memory) == ((), None)
    assert named in str(judgement.answer.reason)


def test_model_and_device_have_to_be_known() -> None:
    nothing = str(judge(config(2), model=None, device=None).answer.reason)
    assert "--model" in nothing
    assert "--gpu-type" in nothing


@pytest.mark.parametrize(
    "ds_config",
    [
        config(2, reduce_bucket_size="large"),
        config(7),
        config(2, fp16={"enabled": True}),
        config(2, micro=10**300),
        config(2, reduce_bucket_size=10**308),
    ],
    ids=["a word for a size", "no such stage", "two precisions", "no batch", "no bucket"],
)
def test_a_config_that_cannot_be_read_is_not_judged(ds_config: dict[str, Any]) -> None:
    judgement = judge(ds_config)
    assert (judgement.findings, judgement.memory) == ((), None)
    assert str(judgement.answer.reason).startswith("memory is not judged: ")


def test_auto_is_what_hugging_face_fills_in(tmp_path: Path) -> None:
    arguments = {"per_device_train_batch_size": 16, "bf16": True, "gradient_checkpointing": False}
    file = tmp_path / "args.json"
    file.write_text(json.dumps(arguments), encoding="utf-8")
    autos = config(3, micro="auto", bf16={"enabled": "auto"}, reduce_bucket_size="auto")
    filled = judge(autos, launcher=Launcher.HF, hf_args=file)
    plain = judge(config(3, micro=16, reduce_bucket_size=4_096**2), activation_checkpointing=False)
    assert filled.memory == plain.memory
    assert verdict(filled) is Verdict.ERROR
    assert fields(filled) == ["train_micro_batch_size_per_gpu"]


def test_tensor_parallelism_replaces_sharding_by_zero() -> None:
    alone, split = (judge(config(2), model=4e10, tensor_parallel=n) for n in (1, 8))
    assert alone.memory is not None
    assert split.memory is not None
    master = [m["device"]["items"]["master_weights"] for m in (alone.memory, split.memory)]
    assert master[0] == pytest.approx(master[1], rel=0.04)
    assert verdict(judge(config(2), model=4e10, device="v100-32gb", tensor_parallel=8)) is (
        Verdict.ERROR
    )


def test_mics_shards_inside_its_groups() -> None:
    whole, groups = (
        judge(config(3, **keys), model="13b", gpus=64) for keys in ({}, {"mics_shard_size": 8})
    )
    assert whole.memory is not None
    assert groups.memory is not None
    moments = [m["device"]["items"]["moments"] for m in (whole.memory, groups.memory)]
    assert moments[1] == pytest.approx(8 * moments[0], rel=0.01)
    (tight,) = judge(
        config(3, mics_shard_size=2, gradient_accumulation_steps=8), model="13b", gpus=64
    ).findings
    assert "instead of" not in str(tight.suggestion)


def test_processes_that_split_a_model_share_the_host() -> None:
    judgement = judge(config(1, **OFFLOAD), tensor_parallel=8, host_gib=64)
    assert judgement.memory is not None
    assert judgement.memory["host"]["local_ranks"] == 8


def test_a_host_that_is_too_small_names_the_offloads() -> None:
    full = judge(config(3, **FULL_OFFLOAD), model="13b", host_gib=200)
    assert fields(full) == [
        "zero_optimization.offload_optimizer",
        "zero_optimization.offload_param",
    ]
    assert {f.rule for f in full.findings} == {"host-memory"}
    assert verdict(full) is Verdict.ERROR
    assert "host memory does not suffice: predicted" in full.findings[0].message
    optimizer = judge(config(2, **OFFLOAD), model="13b", host_gib=200)
    assert fields(optimizer) == ["zero_optimization.offload_optimizer"]


def test_more_nodes_share_the_host_memory_out() -> None:
    ds_config = config(3, **OFFLOAD)
    options: dict[str, Any] = {"model": "13b", "gpus": 16, "host_gib": 200}
    one, four = (judge(ds_config, nodes=nodes, **options).findings for nodes in (1, 4))
    assert [finding.rule for finding in one] == ["host-memory"]
    assert "host-memory" not in [finding.rule for finding in four]


@pytest.mark.parametrize(("optimizer", "moments"), [("AdamW8bit", 1 / 4), ("adafactor", 0)])
def test_the_optimizer_of_the_program_counts(optimizer: str, moments: float) -> None:
    own = config(2)
    del own["optimizer"]
    plain, other = (
        judge(own, client_optimizer=name, activation_checkpointing=True).memory
        for name in ("AdamW", optimizer)
    )
    assert plain is not None
    assert other is not None

    def most(memory: dict[str, Any]) -> float:
        parts = memory["device"]["parts"].values()
        return float(max(part["items"].get("moments", 0) for part in parts))

    assert most(other) == pytest.approx(moments * most(plain), rel=0.01)


def test_an_accelerate_config_is_judged_as_the_ds_config_that_it_becomes(tmp_path: Path) -> None:
    text = """
distributed_type: DEEPSPEED
mixed_precision: bf16
num_processes: 1
deepspeed_config: {zero_stage: 3, offload_optimizer_device: none, offload_param_device: none}
"""
    file = tmp_path / "accelerate.yaml"
    file.write_text(text, encoding="utf-8")
    result = gate(gate_request(ds_config=str(file), model="7b", gpu_type="a100-80gb", seq_len=512))
    found = [f.field for f in result.findings if f.rule == "device-memory"]
    assert found == ["deepspeed_config.offload_optimizer_device"]


def qwen3(**keys: Any) -> ModelShape:
    return shape_from_hf_config(COMMON | {"model_type": "qwen3"} | keys, name="q", where="test")


def test_a_family_without_a_hand_written_program_is_traced_as_plan_does(tmp_path: Path) -> None:
    ds_config = config(2)
    for name, content in (("ds.json", ds_config), ("config.json", dict(qwen3().hf_config))):
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    options: dict[str, Any] = {"seq_len": 512, "activation_checkpointing": False}
    request = plan_request(
        model=str(tmp_path), gpus=8, gpu_type="a100-80gb", ds_config=tmp_path / "ds.json", **options
    )
    planned = plan_config(request).to_json()["memory"]["device"]
    judgement = judge(ds_config, model=qwen3(), **options)
    assert judgement.memory is not None
    assert judgement.memory["assumed"] == []
    assert judgement.memory["device"]["items"] == planned["items"]


def test_a_traced_family_that_is_split_is_not_judged() -> None:
    splits: tuple[dict[str, Any], ...] = ({"tensor_parallel": 2}, {"pipeline_stages": 2})
    for split in splits:
        judgement = judge(config(1), model=qwen3(), **split)
        assert judgement.memory is None
        assert "how tensor parallelism or pipeline stages split qwen3" in str(
            judgement.answer.reason
        )


def test_frozen_parameters_of_a_traced_family_are_not_judged() -> None:
    judgement = judge(config(1), model=qwen3(), trainable_params=1_000)
    assert "model_type qwen3" in str(judgement.answer.reason)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ({"model_type": "t5", "d_model": 64}, "is an encoder-decoder model"),
        (COMMON | {"model_type": "qwen2_vl", "vision_config": {}}, "the vision tower of qwen2_vl"),
        (COMMON | {"model_type": "llama", "num_hidden_layers": 9_999}, "at most 400 layers"),
    ],
    ids=["encoder-decoder", "vision", "deep"],
)
def test_a_config_is_checked_although_its_model_is_not_judged(
    model: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    wrong = config(2) | {"train_batch_size": 7, "gradient_accumulation_steps": 1}
    for name, content in (("ds.json", wrong), ("config.json", model)):
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    result = gate(
        gate_request(
            ds_config=str(tmp_path / "ds.json"), model=str(tmp_path), gpus=8, gpu_type="a100-80gb"
        )
    )
    assert result.verdict is Verdict.ERROR
    assert result.answer.answer is Answer.NOT_JUDGED
    assert reason in str(result.answer.reason)


def test_the_gate_imports_torch_for_a_trace_only() -> None:
    code = """
import sys
from tests.gating.judging import config, judge
assert judge(config(3), model="1.3b").memory is not None
print([m for m in ("torch", "deepspeed", "transformers") if m in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    assert done.stdout.splitlines() == ["[]"]


def test_no_mutated_config_raises(tmp_path: Path) -> None:
    arguments = tmp_path / "args.json"
    arguments.write_text('{"fp16": true, "per_device_train_batch_size": "x", "optim": 3}')
    launches: list[dict[str, Any]] = [
        {},
        {"gpus": 1, "seq_len": None, "activation_checkpointing": True},
        {"launcher": Launcher.HF, "hf_args": arguments, "trainable_params": 100_000},
        {"tensor_parallel": 2, "pipeline_stages": 2},
    ]
    judged_at_all = 0
    for number, ds_config in enumerate(mutated(seed=4, count=800)):
        judgement = judge(
            ds_config, model=small_llama(), device="t4", host_gib=16, **launches[number % 4]
        )
        assert judgement.memory is not None or judgement.answer.reason is not None
        judged_at_all += judgement.memory is not None
    assert judged_at_all > 400
