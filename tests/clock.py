"""Time that passes only when somebody sleeps: a stand-in for the `time` module."""


class Clock:
    """Has what the code under test asks of `time`."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
