from typing import Any

import pytest

from autotune.doctor.check import Verdict
from autotune.doctor.devices import Card, Driver, check_cards, check_cuda, check_driver
from tests.doctor.installations import GOOD, expect, installation

GIB = 2**30
DRIVER = Driver(version="580.65.06", cuda=(13, 0))


def _card(index: int = 0, **changes: Any) -> Card:
    values: dict[str, Any] = {
        "name": "NVIDIA H200",
        "memory_bytes": 140 * GIB,
        "used_bytes": GIB // 2,
        "users": (),
    }
    return Card(index=index, **values | changes)


def test_a_driver_is_reported_with_its_cuda() -> None:
    expect(check_driver(DRIVER), Verdict.OK, "580.65.06", "13.0")


def test_without_a_driver_cpu_ranks_are_suggested() -> None:
    expect(check_driver(None), Verdict.FAIL, "no NVIDIA driver", "--device cpu", "--gpus all")


@pytest.mark.parametrize(
    ("driver", "changes", "verdict", "word"),
    [
        (DRIVER, {}, Verdict.OK, "13.0"),
        (Driver(version="550", cuda=(12, 4)), {}, Verdict.FAIL, "update the driver"),
        # Minor versions are compatible both ways.
        (Driver(version="525", cuda=(12, 0)), {"torch_cuda": "12.8"}, Verdict.OK, "12.8"),
        (DRIVER, {"torch_cuda": None}, Verdict.FAIL, "without CUDA"),
        (DRIVER, {"cuda_error": "CUDA unknown error"}, Verdict.FAIL, "CUDA unknown error"),
        (None, {}, Verdict.OK, "no driver"),
    ],
)
def test_torchs_cuda_must_be_one_that_the_driver_runs(
    driver: Driver | None, changes: dict[str, Any], verdict: Verdict, word: str
) -> None:
    expect(check_cuda(driver, installation(**changes)), verdict, word)


def test_every_device_has_a_line_and_its_users() -> None:
    busy = _card(1, used_bytes=30 * GIB, users=("python (123)",))
    hidden = _card(2, used_bytes=30 * GIB)
    free, used, unseen = check_cards((_card(), busy, hidden), GOOD)
    expect(free, Verdict.OK, "cuda:0", "NVIDIA H200", "140.00 GiB", "free")
    expect(used, Verdict.WARN, "cuda:1", "30.00 GiB in use by python (123)")
    expect(unseen, Verdict.WARN, "cuda:2", "not visible from here")


def test_no_device_fails() -> None:
    [check] = check_cards((), GOOD)
    expect(check, Verdict.FAIL, "no CUDA device", "--device cpu")


def test_devices_of_several_models_fail() -> None:
    checks = list(check_cards((_card(), _card(1, name="NVIDIA L4")), GOOD))
    expect(checks[0], Verdict.FAIL, "1 x NVIDIA H200, 1 x NVIDIA L4", "CUDA_VISIBLE_DEVICES")
    assert len(checks) == 3


@pytest.mark.parametrize(
    ("archs", "capability", "runs"),
    [
        (("sm_90",), (9, 0), True),
        (("sm_80",), (8, 6), True),  # of the same major version
        (("sm_86",), (8, 0), False),
        (("sm_80", "sm_90"), (10, 0), False),
        (("sm_80", "compute_90"), (10, 0), True),  # compiled when it is loaded
        (("sm_90a",), (9, 0), True),
        (("sm_75", "sm_80"), (6, 1), False),
        (("sm_100", "sm_120"), (12, 0), True),
    ],
)
def test_torch_must_have_kernels_for_the_devices(
    archs: tuple[str, ...], capability: tuple[int, int], runs: bool
) -> None:
    torch = installation(archs=archs, capabilities=(capability,))
    checks = list(check_cards((_card(),), torch))
    assert ("kernels" in [check.name for check in checks]) != runs
    if not runs:
        expect(checks[0], Verdict.FAIL, f"capability {capability[0]}.{capability[1]}")
