"""What a study on a pool is judged by; no pool is opened."""

import pytest

from autotune.tune.on_pool import judged_host_bytes


@pytest.mark.parametrize(
    ("device_kind", "emulates", "given_bytes", "judged_bytes"),
    [
        ("cuda", False, None, 64),
        # Real ranks have what is there, whatever was said of a node.
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
