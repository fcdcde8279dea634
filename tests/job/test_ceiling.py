import pytest

from autotune.errors import HardwareError
from autotune.job.ceiling import GIB, format_gib, parse_bytes, parse_ceiling


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("80GB", 80 * 10**9),
        ("80 gb", 80 * 10**9),
        ("72GiB", 72 * GIB),
        ("72gib", 72 * GIB),
        ("1.5TiB", 3 * 2**39),
        ("1_000MB", 10**9),
        ("4096 MiB", 4 * GIB),
        ("1e9B", 10**9),
    ],
)
def test_gigabytes_and_gibibytes_are_distinct(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("80", r"--x 80: GB \(1000\^3 bytes\) or GiB"),
        ("80G", r"GB \(1000\^3 bytes\) or GiB"),
        ("lots", "--x 'lots': not a size; write binary gigabytes"),
        ("", "--x '': not a size"),
        ("nanGiB", "not a size"),
        ("1e999GiB", "not a size"),
        ("80parsec", "unknown unit 'parsec'"),
        ("90%", "a share, where a size is needed"),
        ("0GiB", "must be more than zero"),
        ("0", "--x 0: must be more than zero; write binary gigabytes"),
        ("-1", "must be more than zero"),
        ("0.5B", "must be more than zero"),
        ("-4GiB", "must be more than zero"),
    ],
)
def test_an_unreadable_size_names_place_value_and_way_out(text: str, message: str) -> None:
    with pytest.raises(HardwareError, match=message):
        parse_bytes(text, where="--x")


@pytest.mark.parametrize("text", ["0", "-1GiB", "10", "lots", "80parsec", "50%"])
def test_a_share_is_offered_only_where_it_is_taken(text: str) -> None:
    with pytest.raises(HardwareError) as of_size:
        parse_bytes(text, where="--host-memory")
    assert "write a share" not in str(of_size.value)
    assert "72GiB" in str(of_size.value)
    if not text.endswith("%"):
        with pytest.raises(HardwareError, match=r"write a share \(90%\), "):
            parse_ceiling(text, device_bytes=80 * GIB)


def test_a_share_is_taken_of_the_device() -> None:
    assert parse_ceiling("90%", device_bytes=100 * GIB) == 90 * GIB
    assert parse_ceiling("100%", device_bytes=100 * GIB) == 100 * GIB


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("101%", r"--memory-ceiling 101%: is above the whole device; use 100% or less"),
        ("81GiB", r"is above the device's 80\.00 GiB; use 100% or less"),
        ("88GB", r"is above the device's 80\.00 GiB; use 100% or less"),
    ],
)
def test_a_ceiling_above_the_device_is_refused(text: str, message: str) -> None:
    with pytest.raises(HardwareError, match=message):
        parse_ceiling(text, device_bytes=80 * GIB)


@pytest.mark.parametrize("text", ["0%", "-5%", "0GB"])
def test_a_ceiling_of_nothing_is_refused(text: str) -> None:
    with pytest.raises(HardwareError, match=r"--memory-ceiling .* must be more than zero"):
        parse_ceiling(text, device_bytes=80 * GIB)


def test_gib_are_only_for_reading() -> None:
    assert format_gib(1.5 * GIB) == "1.50 GiB"
