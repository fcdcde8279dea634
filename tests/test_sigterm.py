import os
from signal import SIGTERM, getsignal

import pytest

from autotune.sigterm import interrupted_by_sigterm


def _get_two(done: list[str]) -> None:
    with interrupted_by_sigterm():
        try:
            os.kill(os.getpid(), SIGTERM)
            done.append("went on")
        finally:
            os.kill(os.getpid(), SIGTERM)
            done.append("closed")


def test_the_first_sigterm_interrupts_and_a_second_one_does_not_disturb_what_that_began() -> None:
    before = getsignal(SIGTERM)
    done: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        _get_two(done)
    assert done == ["closed"]
    assert getsignal(SIGTERM) is before
