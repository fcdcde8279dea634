import os
from collections.abc import Iterator
from signal import SIG_IGN, SIGINT, SIGTERM, Signals, default_int_handler, getsignal, signal

import pytest

from autotune.sigterm import interrupted_by_sigterm


@pytest.fixture(autouse=True)
def heeds_ctrl_c() -> Iterator[None]:
    """Take Ctrl-C as a program in the foreground does."""
    before = signal(SIGINT, default_int_handler)
    yield
    signal(SIGINT, before)


def _get_two(done: list[str], first: Signals, second: Signals) -> None:
    with interrupted_by_sigterm():
        try:
            os.kill(os.getpid(), first)
            done.append("went on")
        finally:
            os.kill(os.getpid(), second)
            done.append("closed")


@pytest.mark.parametrize("second", [SIGTERM, SIGINT])
@pytest.mark.parametrize("first", [SIGTERM, SIGINT])
def test_the_first_signal_interrupts_and_a_second_one_does_not_disturb_what_that_began(
    first: Signals, second: Signals
) -> None:
    before = [getsignal(signum) for signum in (SIGINT, SIGTERM)]
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        _get_two(done, first, second)
    assert done == ["closed"]
    assert [getsignal(signum) for signum in (SIGINT, SIGTERM)] == before


def test_where_ctrl_c_is_ignored_it_stays_so() -> None:
    signal(SIGINT, SIG_IGN)
    with interrupted_by_sigterm():
        os.kill(os.getpid(), SIGINT)
    assert getsignal(SIGINT) is SIG_IGN
