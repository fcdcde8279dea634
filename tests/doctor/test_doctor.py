"""The whole examination: on this machine, and with parts of it broken."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from autotune import doctor
from autotune.doctor import DoctorRequest, Verdict, examine_machine, worst
from autotune.doctor.check import Check, fail, ok, run_group, warn
from autotune.doctor.installation import ask_installation
from autotune.errors import HardwareError
from tests.cli.calls import autotune_here
from tests.doctor.installations import GOOD, installation

Patch = Callable[..., None]


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> Patch:
    """Return a function that replaces what asks this machine; all is well to begin with."""

    def patch(**stand_ins: Any) -> None:
        values: dict[str, Any] = {
            "ask_installation": lambda _kind, **_: GOOD,
            "read_driver": lambda: None,
            "read_cards": tuple,
            "read_compilers": lambda _home: (),
            "check_host": lambda _folder: [],
            "check_cluster": list,
            "check_packages": list,
        }
        for name, value in (values | stand_ins).items():
            monkeypatch.setattr(doctor, name, value)

    return patch


def test_the_worst_check_counts() -> None:
    good, so_so, bad = ok("a", "x"), warn("b", "x", "y"), fail("c", "x", "y")
    assert worst([good]) is Verdict.OK
    assert worst([so_so, good]) is Verdict.WARN
    assert worst([so_so, bad, good]) is Verdict.FAIL
    assert worst([]) is Verdict.OK


def test_a_check_that_crashes_is_a_line_and_ends_nothing(patched: Patch) -> None:
    def crash() -> Iterable[Check]:
        yield ok("first", "x")
        raise KeyError("oom_kill")

    [check] = run_group("host", crash)
    assert check.verdict is Verdict.WARN
    assert "KeyError: 'oom_kill'" in check.line
    patched(check_cluster=crash)
    lines = [check.line for check in examine_machine(DoctorRequest(device="cpu"))]
    assert any("Ray" in line and "could not be checked" in line for line in lines)


def test_without_torch_all_else_is_still_checked(patched: Patch) -> None:
    def ask(_kind: str, **_: object) -> None:
        raise HardwareError("torch or DeepSpeed cannot be imported: ImportError: libcudart.so.13")

    patched(ask_installation=ask)
    checks = {check.name: check for check in examine_machine(DoctorRequest())}
    assert checks["torch"].verdict is Verdict.FAIL
    assert "libcudart.so.13" in checks["torch"].line
    assert {"driver", "arch list"} <= set(checks)


def test_fix_reaches_the_locks(patched: Patch) -> None:
    asked: list[bool] = []

    def ask(_kind: str, *, remove_locks: bool) -> Any:
        asked.append(remove_locks)
        return installation(stale_locks=("/x/lock",))

    patched(ask_installation=ask)
    checks = {check.name: check for check in examine_machine(DoctorRequest(fix=True))}
    assert asked == [True]
    assert "removed 1" in checks["build locks"].line


def test_a_run_that_would_fail_ends_with_1(
    patched: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    patched()
    call = autotune_here("doctor", capsys=capsys)
    assert call.code == 1
    assert "FAIL  driver" in call.out
    assert call.err == ""
    result = json.loads(autotune_here("doctor", "--json", capsys=capsys).out)
    assert (result["device"], result["verdict"]) == ("cuda", "fail")
    driver = next(check for check in result["checks"] if check["name"] == "driver")
    assert driver["verdict"] == "fail"
    assert "--device cpu" in driver["cure"]


def test_an_unknown_device_is_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    call = autotune_here("doctor", "--device", "tpu", capsys=capsys)
    assert (call.code, call.out) == (2, "")
    assert "--device tpu: must be auto, cuda or cpu" in call.err


def test_torch_and_deepspeed_tell_of_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    lock = tmp_path / "fused_adam" / "lock"
    lock.parent.mkdir()
    lock.touch()
    found = ask_installation("cuda", remove_locks=False)
    assert found.stale_locks == (str(lock),)
    assert lock.exists()
    ops = {op.name: op for op in found.ops}
    assert not ops["fused_adam"].built
    assert ops["fused_adam"].needs_nvcc
    assert not ops["cpu_adam"].needs_nvcc
    # A library that is none: a compile that was cut short, another torch.
    (lock.parent / "fused_adam.so").write_bytes(b"")
    again = ask_installation("cuda", remove_locks=True)
    assert not lock.exists()
    broken = next(op for op in again.ops if op.name == "fused_adam")
    assert broken.built
    assert broken.why is not None


def test_one_op_can_be_asked_about_on_the_cpu_too() -> None:
    assert ask_installation("cpu").ops == ()
    (asked,) = ask_installation("cpu", ops=["async_io"]).ops
    assert asked.name == "async_io"
    assert not asked.needs_nvcc


@pytest.mark.ray
def test_cpu_ranks_can_run_here(capsys: pytest.CaptureFixture[str]) -> None:
    call = autotune_here("doctor", "--device", "cpu", capsys=capsys)
    assert call.code == 0, call.out
    for line in call.out.splitlines():
        assert line.startswith(("ok  ", "warn"))
    for name in ("packages", "build locks", "shared memory", "open files", "disk: studies", "Ray"):
        assert f"  {name}" in call.out
    assert "driver" not in call.out
