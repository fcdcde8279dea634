import sys
from pathlib import Path
from typing import Any

import pytest

from autotune.doctor.check import Verdict
from autotune.doctor.ops import (
    Compiler,
    check_arch_list,
    check_compilers,
    check_locks,
    check_ops,
    ops_wait,
    read_compilers,
)
from tests.doctor.installations import GOOD, expect, installation, op

COMPILERS = tuple(
    Compiler(name=name, version=version)
    for name, version in (("nvcc", "13.0"), ("g++", "13.3.0"), ("ninja", "1.13.0"))
)


def _without(*names: str) -> tuple[Compiler, ...]:
    return tuple(
        Compiler(name=c.name, version=None if c.name in names else c.version) for c in COMPILERS
    )


@pytest.mark.parametrize(
    ("of_op", "compilers", "verdict", "words"),
    [
        (op("fused_adam", built=True), _without("nvcc", "g++"), Verdict.OK, ["built"]),
        (op("fused_adam"), COMPILERS, Verdict.OK, ["not built yet", "builds it first"]),
        (op("fused_adam"), _without("nvcc"), Verdict.FAIL, ["without nvcc", "CUDA_HOME"]),
        (op("cpu_adam"), _without("nvcc"), Verdict.OK, ["not built yet"]),
        (op("cpu_adam"), _without("g++"), Verdict.FAIL, ["without g++", "torch_adam"]),
        (op("cpu_lion"), _without("ninja"), Verdict.WARN, ["without ninja"]),
        (op("cpu_adam", why="no AVX"), COMPILERS, Verdict.FAIL, ["cannot be built: no AVX"]),
        (op("async_io", why="..."), COMPILERS, Verdict.WARN, ["NVMe", "libaio-dev"]),
        (
            op("fused_adam", built=True, why="ImportError: undefined symbol"),
            COMPILERS,
            Verdict.FAIL,
            ["broken: ImportError", "rm -r /none/fused_adam"],
        ),
        (op("quantizer", built=True, why="x"), COMPILERS, Verdict.WARN, ["broken"]),
    ],
)
def test_an_op_is_built_or_can_be_or_has_a_reason(
    of_op: Any, compilers: tuple[Compiler, ...], verdict: Verdict, words: list[str]
) -> None:
    [check] = check_ops(installation(ops=(of_op,)), compilers)
    expect(check, verdict, f"op {of_op.name}", *words)


def test_a_broken_op_is_named_with_its_folder(tmp_path: Path) -> None:
    library = tmp_path / "py312_cu130" / "fused_adam" / "fused_adam.so"
    library.parent.mkdir(parents=True)
    library.touch()
    torch = installation(
        extensions=str(tmp_path), ops=(op("fused_adam", built=True, why="undefined symbol"),)
    )
    [check] = check_ops(torch, COMPILERS)
    expect(check, Verdict.FAIL, f"rm -r {library.parent}")


@pytest.mark.parametrize(
    ("compilers", "waits", "verdicts"),
    [
        (COMPILERS, True, [Verdict.OK, Verdict.OK, Verdict.OK]),
        (_without("nvcc"), True, [Verdict.FAIL, Verdict.OK, Verdict.OK]),
        # Nothing has to be compiled any more.
        (_without("nvcc", "ninja"), False, [Verdict.WARN, Verdict.OK, Verdict.WARN]),
    ],
)
def test_a_compiler_is_needed_as_long_as_ops_wait(
    compilers: tuple[Compiler, ...], waits: bool, verdicts: list[Verdict]
) -> None:
    checks = list(check_compilers(compilers, GOOD, ops_wait=waits))
    assert [check.verdict for check in checks] == verdicts


def test_nvcc_must_be_of_torchs_major_version() -> None:
    old = (Compiler(name="nvcc", version="12.8"), *COMPILERS[1:])
    expect(next(check_compilers(old, GOOD, ops_wait=True)), Verdict.FAIL, "12.8", "CUDA 13.0")
    other_minor = (Compiler(name="nvcc", version="13.2"), *COMPILERS[1:])
    expect(next(check_compilers(other_minor, GOOD, ops_wait=True)), Verdict.OK, "13.2")


def test_only_adams_ops_are_waited_for() -> None:
    assert ops_wait(installation(ops=(op("fused_adam"),)))
    assert not ops_wait(installation(ops=(op("fused_adam", built=True), op("quantizer"))))


def test_compilers_are_asked_for_their_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(name: str, text: str, code: int = 0) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!{sys.executable}\nprint('''{text}''')\nraise SystemExit({code})\n")
        path.chmod(0o755)

    nvcc = "nvcc: NVIDIA (R) Cuda compiler\nBuilt on 2025\n"
    program("cuda/bin/nvcc", nvcc + "Cuda compilation tools, release 13.0, V13.0.88")
    program("g++", "g++ (Ubuntu 13.3.0-6ubuntu2) 13.3.0")
    program("ninja", "broken", 1)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    found = {c.name: c.version for c in read_compilers(str(tmp_path / "cuda"))}
    assert found == {"nvcc": "13.0", "g++": "13.3.0", "ninja": None}
    assert read_compilers(None)[0].version is None


def test_stale_locks_and_their_removal_are_reported() -> None:
    locked = installation(stale_locks=("/x/fused_adam/lock",))
    expect(check_locks(GOOD, removed=False), Verdict.OK, "no stale locks")
    expect(check_locks(locked, removed=False), Verdict.WARN, "/x/fused_adam/lock", "--fix")
    expect(check_locks(locked, removed=True), Verdict.OK, "removed 1", "/x/fused_adam/lock")


@pytest.mark.parametrize(
    ("environment", "verdict", "words"),
    [
        ({}, Verdict.OK, ["not set"]),
        ({"TORCH_CUDA_ARCH_LIST": "8.0;9.0+PTX"}, Verdict.OK, ["8.0;9.0+PTX"]),
        (
            {"TORCH_CUDA_ARCH_LIST": "9.0a"},
            Verdict.WARN,
            ["9.0a", "export TORCH_CUDA_ARCH_LIST='9.0'"],
        ),
        ({"TORCH_CUDA_ARCH_LIST": "native"}, Verdict.WARN, ["unset TORCH_CUDA_ARCH_LIST"]),
    ],
)
def test_an_arch_list_that_deepspeed_cannot_read_has_its_cure(
    environment: dict[str, str], verdict: Verdict, words: list[str]
) -> None:
    expect(check_arch_list(environment), verdict, *words)
