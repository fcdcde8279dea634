"""What a pool's devices and nodes tell the models; without a pool."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.evaluate.emulated import EmulatedEvaluator
from autotune.evaluate.measured import MeasuredEvaluator
from autotune.predict.links.communication import Links
from autotune.search.progress import Silent
from autotune.tuning.on_pool import _speed_surroundings, judged_host_bytes
from autotune.tuning.prepare import PreparedStudy, prepare
from tests.asked import tune_request
from tests.search.simulated import H100

_BYTES = 80 * 2**30


@dataclass(slots=True)
class Noted(Silent):
    """Records notes."""

    texts: list[str] = field(default_factory=list)

    def noted(self, text: str) -> None:
        self.texts.append(text)


@pytest.fixture
def study(tmp_path: Path) -> PreparedStudy:
    request = tune_request(
        model="tiny", gpus=8, evaluator="emulated", studies_folder=tmp_path / "studies"
    )
    return prepare(request, Silent())


def _pool(model: str = "NVIDIA H100 80GB HBM3", *, nodes: str = "a") -> Any:
    return SimpleNamespace(
        device_model=model,
        device_bytes=_BYTES,
        groups=[SimpleNamespace(nodes=tuple(nodes))],
        host_cpus=32,
        host_memory_bytes=2**40,
        threads_per_slot=16,
        request=SimpleNamespace(device_kind="cuda"),
    )


def _emulated(study: PreparedStudy, pool: Any, *, links: Links | None) -> EmulatedEvaluator:
    return EmulatedEvaluator(
        pool=pool,
        workload=study.workload,
        ceiling_bytes=_BYTES,
        gpus_per_node=4,
        seed=1,
        study_folder=study.folder,
        links=links,
    )


def test_emulated_ranks_share_the_node_that_they_pretend_to_be_on(study: PreparedStudy) -> None:
    pool = _pool()
    evaluator = _emulated(study, pool, links=Links.of_device(H100))
    around = _speed_surroundings(study, pool, evaluator, Silent())
    assert around is not None
    assert around.device.name == "h100-80gb"
    assert around.device.memory_bytes == _BYTES
    assert around.local_ranks == 4
    assert (around.played, around.cpu_threads) == (True, 8)
    assert not around.silent


def test_untimed_collectives_take_no_time_in_the_model_either(study: PreparedStudy) -> None:
    pool = _pool()
    around = _speed_surroundings(study, pool, _emulated(study, pool, links=None), Silent())
    assert around is not None
    assert around.silent


def test_real_ranks_share_the_node_that_they_are_on(study: PreparedStudy) -> None:
    pool = _pool(nodes="aaaabbbb")
    evaluator = MeasuredEvaluator(
        pool=pool,
        workload=study.workload,
        ceiling_bytes=_BYTES,
        seed=1,
        study_folder=study.folder,
    )
    around = _speed_surroundings(study, pool, evaluator, Silent())
    assert around is not None
    assert around.local_ranks == 4
    assert not around.played


def test_an_unknown_device_is_reported_and_not_guessed(study: PreparedStudy) -> None:
    pool, noted = _pool("ACME X1"), Noted()
    assert _speed_surroundings(study, pool, _emulated(study, pool, links=None), noted) is None
    assert noted.texts == ["the speed model does not know ACME X1: no speed is predicted"]


def test_cpu_ranks_have_no_speed_model(study: PreparedStudy) -> None:
    pool = _pool("cpu")
    on_cpu = replace(study, device_kind="cpu")
    assert _speed_surroundings(on_cpu, pool, _emulated(study, pool, links=None), Silent()) is None


@pytest.mark.parametrize(
    ("device_kind", "emulates", "given_bytes", "judged_bytes"),
    [
        ("cuda", False, None, 64),
        # Real ranks use this host's memory, whatever --host-memory is.
        ("cuda", False, 1024, 64),
        ("cuda", True, None, 64),
        ("cuda", True, 1024, 1024),
        # Their ceiling is a share of the host's memory already.
        ("cpu", False, None, None),
        ("cpu", True, 1024, None),
    ],
)
def test_a_node_s_memory(
    device_kind: str, given_bytes: int | None, judged_bytes: int | None, *, emulates: bool
) -> None:
    found = judged_host_bytes(
        device_kind=device_kind, emulates=emulates, here_bytes=64, given_bytes=given_bytes
    )
    assert found == judged_bytes
