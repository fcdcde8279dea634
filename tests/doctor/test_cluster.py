from pathlib import Path

import pytest

from autotune.doctor import cluster
from autotune.doctor.check import Verdict
from autotune.doctor.cluster import check_address, check_leftovers, check_ray, check_sessions
from tests.doctor.installations import expect


def test_a_ray_that_does_not_start_is_reported_in_one_line() -> None:
    def start() -> None:
        raise RuntimeError("the node\ndied")

    expect(check_ray(start), Verdict.FAIL, "RuntimeError: the node died", "session_latest/logs")


def test_a_ray_that_starts_is_reported_with_its_version() -> None:
    expect(check_ray(lambda: None), Verdict.OK, "starts and ends")


def test_other_clusters_are_reported() -> None:
    expect(check_leftovers(()), Verdict.OK)
    expect(check_leftovers((12, 34)), Verdict.WARN, "12, 34", "ray stop")


def test_many_ended_sessions_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_MANY_SESSIONS", 2)
    for number in range(3):
        (tmp_path / f"session_{number}").mkdir()
    (tmp_path / "session_latest").symlink_to(tmp_path / "session_2")
    expect(check_sessions(tmp_path), Verdict.WARN, "3 in", "rm -r")
    (tmp_path / "session_0").rmdir()
    expect(check_sessions(tmp_path), Verdict.OK, "2 in")
    expect(check_sessions(tmp_path / "none"), Verdict.OK, "0 in")


def test_an_address_in_the_environment_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert list(check_address()) == []
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    [check] = check_address()
    expect(check, Verdict.WARN, "--ray-address 10.0.0.1:6379")
