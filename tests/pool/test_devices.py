"""Are there enough devices, and what can be done if not? Pure."""

from dataclasses import replace

import pytest

from autotune.errors import HardwareError
from autotune.pool.pool import PoolRequest, _emulates, _require_devices


def _request(*, emulate: bool | None, kind: str = "cuda", ranks: int = 8) -> PoolRequest:
    return PoolRequest(
        world_size=ranks, device_kind=kind, model_type="llama", emulate=emulate, ray_address="h:1"
    )


@pytest.mark.parametrize(
    ("emulate", "kind", "available", "emulates"),
    [
        pytest.param(None, "cuda", 8, False, id="enough: real ranks"),
        pytest.param(None, "cuda", 7, True, id="too few: one plays one rank"),
        pytest.param(None, "cuda", 1, True, id="one"),
        pytest.param(None, "cpu", 1, False, id="never on CPU slots by itself"),
        pytest.param(True, "cuda", 64, True, id="asked for, though there are enough"),
        pytest.param(True, "cpu", 2, True, id="asked for on CPU slots"),
        pytest.param(False, "cuda", 1, False, id="not wanted"),
    ],
)
def test_real_ranks_where_the_devices_suffice_by_default(
    emulate: bool | None, kind: str, available: int, emulates: bool
) -> None:
    assert _emulates(_request(emulate=emulate, kind=kind), available) == emulates


def test_too_few_devices_for_real_ranks_name_emulation_as_a_choice() -> None:
    with pytest.raises(HardwareError) as raised:
        _require_devices(_request(emulate=False), 1, where="this machine")
    text = str(raised.value)
    assert text.startswith(
        "--gpus 8: this machine has 1 CUDA devices; one trial needs one for each"
    )
    assert "--evaluator emulated, where one of them emulates one rank of 8" in text


def test_a_command_without_emulation_does_not_offer_it() -> None:
    request = replace(_request(emulate=False), offers_emulation=False)
    with pytest.raises(HardwareError, match="1 CUDA devices; each rank needs one; ") as raised:
        _require_devices(request, 1, where="this machine")
    assert "--evaluator" not in str(raised.value)


@pytest.mark.parametrize("emulate", [None, True])
def test_no_device_is_too_few_for_emulation_too(emulate: bool | None) -> None:
    with pytest.raises(HardwareError) as raised:
        _require_devices(_request(emulate=emulate), 0, where="this machine")
    text = str(raised.value)
    assert "has 0 CUDA devices; even an emulated trial needs one" in text
    assert "--evaluator" not in text
    _require_devices(_request(emulate=emulate), 1, where="this machine")
