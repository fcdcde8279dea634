import json
from collections.abc import Callable

import pytest

from autotune.study.outcome import Phase
from autotune.trial.spec import Emulation, Place, StepRule, TrialSpec


def _place(**fields: object) -> Place:
    return Place(
        **{
            "rank": 3,
            "world_size": 4,
            "local_rank": 1,
            "local_world_size": 2,
            "master_addr": "10.0.0.1",
            "master_port": 4321,
        }
        | fields  # type: ignore[arg-type]
    )


def test_a_spec_survives_json(make_spec: Callable[..., TrialSpec]) -> None:
    spec = make_spec(
        {"zero_optimization.stage": 3},
        steps=StepRule(min_steps=2, slow_step_s=0.5),
        hang_timeouts_s={Phase.BUILD: 1.5, Phase.FIRST_STEP: 2.0},
        same_weights=True,
    )
    assert TrialSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_an_emulated_spec_survives_json_and_keeps_free_what_it_is_charged(
    make_spec: Callable[..., TrialSpec],
) -> None:
    emulation = Emulation(world_size=64, local_world_size=8, host_bytes=5, charged_bytes=100)
    spec = make_spec(emulation=emulation, ceiling_bytes=1_000)
    assert TrialSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert spec.enforced_bytes == 900
    assert make_spec(ceiling_bytes=1_000).enforced_bytes == 1_000


def test_a_place_survives_json() -> None:
    place = _place(visible_devices="2,3", log_path="rank-3.log")
    assert Place(**json.loads(json.dumps(place.to_json()))) == place


def test_a_rank_sees_what_deepspeeds_launcher_would_set() -> None:
    assert _place(visible_devices="2,3").environment() == {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "LOCAL_SIZE": "2",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "4321",
        "CUDA_VISIBLE_DEVICES": "2,3",
    }


def test_a_cpu_rank_gets_no_cuda_variables() -> None:
    assert "CUDA_VISIBLE_DEVICES" not in _place().environment()


@pytest.mark.parametrize("field", ["label", "ds_config", "ceiling_bytes", "hang_timeouts_s"])
def test_a_spec_needs_its_fields(make_spec: Callable[..., TrialSpec], field: str) -> None:
    fields = make_spec().to_json()
    del fields[field]
    with pytest.raises((TypeError, KeyError), match=field):
        TrialSpec.from_json(fields)
