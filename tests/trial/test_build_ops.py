from typing import Any

import pytest

from autotune.ds_config.compiled_ops import compiled_ops
from autotune.trial import build_ops
from autotune.trial.build_ops import BUILDERS


class _Builder:
    def __init__(self, op: str, broken: frozenset[str]) -> None:
        self._op, self._broken = op, broken

    def load(self, *, verbose: bool) -> None:
        assert not verbose
        if self._op in self._broken:
            raise RuntimeError(
                "Error building extension\n" + "\n".join(f"line {n}" for n in range(99))
            )


def _build(ops: list[str], *, broken: frozenset[str] = frozenset()) -> tuple[bool, list[Any]]:
    events: list[Any] = []
    done = build_ops.build_ops(
        ops, lambda kind, **content: events.append((kind, content)), lambda op: _Builder(op, broken)
    )
    return done, events


def test_only_an_op_that_is_not_built_yet_is_reported_as_building(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(build_ops, "is_built", lambda op: op == "fused_adam")
    done, events = _build(["fused_adam", "cpu_adam"])
    assert done
    assert [(kind, content["op"]) for kind, content in events] == [
        ("built", "fused_adam"),
        ("building", "cpu_adam"),
        ("built", "cpu_adam"),
    ]


def test_a_failed_build_ends_it_with_the_compilers_last_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(build_ops, "is_built", lambda _op: True)
    done, events = _build(["cpu_adam", "fused_adam"], broken=frozenset({"cpu_adam"}))
    assert not done
    [(kind, content)] = events
    assert (kind, content["op"]) == ("failed", "cpu_adam")
    lines = content["why"].splitlines()
    assert lines[-1] == "line 98"
    assert len(lines) == 12


def test_an_op_counts_as_built_once_torch_has_its_library(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    assert not build_ops.is_built("cpu_adam")
    (tmp_path / "cpu_adam" / "cpu_adam.so").touch()
    assert build_ops.is_built("cpu_adam")


def test_deepspeed_has_a_builder_of_every_op_that_a_study_may_need() -> None:
    for optimizer in ("Adam", "AdamW", "Adagrad", "Lion", "Lamb", "Muon"):
        everything: dict[str, list[Any]] = {
            "zero_optimization.offload_optimizer.device": ["none", "cpu"],
            "zero_optimization.offload_param.device": ["nvme"],
            "zero_optimization.zero_quantized_weights": [True],
        }
        assert set(compiled_ops({"type": optimizer}, everything)) <= set(BUILDERS)
    # On CUDA; the CPU accelerator, which runs here, has its own few.
    from deepspeed.accelerator.cuda_accelerator import CUDA_Accelerator

    cuda = CUDA_Accelerator()
    assert [op for op, name in BUILDERS.items() if cuda.get_op_builder(name) is None] == []
    assert [op for op, name in BUILDERS.items() if cuda.create_op_builder(name).name != op] == []
