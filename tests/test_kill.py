"""A driver that is killed, in every state that a rank can be in, leaves nothing behind.

A rank that writes dies of a broken pipe and proves nothing: here ranks sleep in a collective, spin
in C, wait for a compiler, or are not there yet because their parent still imports.
"""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from signal import SIGINT, SIGKILL, SIGTERM, Signals

import optuna
import psutil
import pytest
from optuna.trial import FrozenTrial, TrialState

from tests import rank_processes

pytestmark = pytest.mark.ray

INTERRUPTED = 130
NUM_TRIALS = 5
_START_S = 90.0
_NO_RANK_S = 5.0
_NOTHING_S = 15.0
_SMALL = {
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 352,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 1_024,
    "max_position_embeddings": 512,
}
# The kernel of CPUAdam is compiled in `initialize`; `torch_adam` would avoid it.
_COMPILES = {
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": False}},
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
}


def _hear_interrupts() -> None:
    # A shell starts what runs in the background with SIGINT ignored, and that is inherited.
    signal.signal(signal.SIGINT, signal.default_int_handler)


class Driver:
    """`autotune run` as a process in a session of its own, as a terminal starts it."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self._output = folder / "output.txt"
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "autotune.cli.main", "run", "--study", "killed"),
                    *("--model", "config.json", "--gpus", "2"),
                    *("--device", "cpu", "--seed", "1", "--confirm-rounds", "2"),
                    *("--trials", str(NUM_TRIALS)),
                    *("--seq-len", "64", "--global-batch-size", "8", *options),
                ],
                cwd=folder,
                env=os.environ | {"TORCH_EXTENSIONS_DIR": str(folder / "extensions")},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_hear_interrupts,
            )
        self._mark: str | None = None

    @property
    def mark(self) -> str:
        """What its descendants carry in their environment."""
        if self._mark is None:
            self.wait_until(lambda: rank_processes.mark_of(self.process.pid), "the pool starts")
            self._mark = rank_processes.mark_of(self.process.pid)
        assert self._mark is not None
        return self._mark

    def wait_until(self, holds: Callable[[], object], what: str) -> None:
        def holds_or_ended() -> object:
            assert self.process.poll() is None, f"ended early: {self.output}"
            return holds()

        rank_processes.wait_until(holds_or_ended, timeout_s=_START_S, what=what)

    @property
    def output(self) -> str:
        return self._output.read_text(encoding="utf-8")[-3_000:]

    def end(self, signum: Signals) -> int:
        """Send a signal as its user would, and return the exit code when nothing is left."""
        mark, began = self.mark, time.monotonic()
        family = psutil.Process(self.process.pid).children(recursive=True)
        assert family
        if signum is SIGINT:
            os.killpg(self.process.pid, signum)  # Ctrl-C reaches the whole foreground group
        elif signum is SIGTERM:
            # As `timeout` does: its child, then the child's group, in which Ray's processes are.
            self.process.send_signal(signum)
            os.killpg(self.process.pid, signum)
        else:
            self.process.send_signal(signum)

        def left() -> list[psutil.Process]:
            marked = rank_processes.marked_processes(mark)
            return [*marked, *(p for p in family if rank_processes.lives(p))]

        rank_processes.wait_until_none(lambda: rank_processes.forks(mark), timeout_s=_NO_RANK_S)
        rank_processes.wait_until_none(left, timeout_s=began + _NOTHING_S - time.monotonic())
        rank_processes.wait_until_none(
            lambda: rank_processes.slot_folders(mark), timeout_s=_NO_RANK_S
        )
        return self.process.wait(timeout=max(began + _NOTHING_S - time.monotonic(), 0.1))


Start = Callable[..., Driver]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a driver on a model and a base config."""
    drivers: list[Driver] = []

    def start(*options: str, **dimensions: int) -> Driver:
        (tmp_path / "config.json").write_text(json.dumps(_SMALL | dimensions), encoding="utf-8")
        drivers.append(Driver(tmp_path, *options))
        return drivers[-1]

    yield start
    for driver in drivers:
        if driver.process.poll() is None:
            driver.process.kill()
            driver.process.wait()


def _wait_for_ranks(driver: Driver) -> dict[int, psutil.Process]:
    driver.wait_until(lambda: len(rank_processes.ranks(driver.mark)) == 2, "two ranks live")
    return rank_processes.ranks(driver.mark)


def _parents_import(start: Start, _folder: Path) -> Driver:
    driver = start()
    driver.wait_until(lambda: rank_processes.parents(driver.mark), "a parent lives")
    time.sleep(0.5)
    return driver


def _put_to_sleep(driver: Driver) -> None:
    """Stop one rank, and return when the other one sleeps because of it."""
    while True:
        ranks = _wait_for_ranks(driver)
        try:
            ranks[1].suspend()
            driver.wait_until(partial(_sleeps, ranks[0]), "rank 0 waits for rank 1")
        except psutil.NoSuchProcess:
            # Caught at the end of a trial; the next one will do.
            with contextlib.suppress(psutil.NoSuchProcess):
                ranks[1].resume()
        else:
            return


def _sleeps(process: psutil.Process) -> bool:
    for _ in range(10):
        if process.status() != psutil.STATUS_SLEEPING:
            return False
        time.sleep(0.05)
    return True


def _ranks_spin(start: Start, _folder: Path) -> Driver:
    # A micro step takes seconds, a matrix product a good part of one.
    driver = start("--seq-len", "512", hidden_size=1_024, num_hidden_layers=2)
    ranks = _wait_for_ranks(driver)
    driver.wait_until(lambda: ranks[0].cpu_times().user > 3, "rank 0 computes")
    return driver


def _a_rank_compiles(start: Start, folder: Path) -> Driver:
    (folder / "base.json").write_text(json.dumps(_COMPILES), encoding="utf-8")
    driver = start("--base", "base.json")
    driver.wait_until(lambda: rank_processes.named("cc1plus", driver.mark), "a compiler runs")
    return driver


@pytest.mark.parametrize("signum", [SIGKILL, SIGINT], ids=["kill -9", "Ctrl-C"])
@pytest.mark.parametrize("state", [_parents_import, _ranks_spin, _a_rank_compiles])
def test_a_driver_that_ends_leaves_nothing_whatever_its_ranks_do(
    start: Start, tmp_path: Path, state: Callable[[Start, Path], Driver], signum: Signals
) -> None:
    driver = state(start, tmp_path)
    code = driver.end(signum)
    assert code == (INTERRUPTED if signum is SIGINT else -signum), driver.output
    assert "Traceback" not in driver.output


def test_a_sigterm_that_ray_gets_too_ends_as_ctrl_c_does(start: Start, tmp_path: Path) -> None:
    driver = _ranks_spin(start, tmp_path)
    assert driver.end(SIGTERM) == INTERRUPTED, driver.output
    assert "interrupted; --study killed --resume continues it" in driver.output
    assert _stored(tmp_path)[-1].user_attrs["interrupted"]


def test_a_cluster_that_answers_no_more_holds_nobody(start: Start) -> None:
    driver = start()
    _wait_for_ranks(driver)
    [cluster_state] = rank_processes.named("gcs_server", driver.mark)
    cluster_state.suspend()
    assert driver.end(SIGINT) == INTERRUPTED, driver.output


def _stored(folder: Path) -> list[FrozenTrial]:
    storage = f"sqlite:///{folder / 'studies/killed/study.db'}"
    return optuna.load_study(study_name="killed", storage=storage).trials


def _num_finished(folder: Path) -> int:
    if not _has_begun(folder / "studies/killed/study.db"):
        return 0
    return sum(trial.state.is_finished() for trial in _stored(folder))


def _has_begun(path: Path) -> bool:
    """Whether the driver has made its study. Optuna, asked too early, would make its tables too."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            return bool(database.execute("SELECT study_name FROM studies").fetchall())
    except sqlite3.OperationalError:
        return False


def _config(trial: FrozenTrial) -> str:
    candidate = trial.user_attrs["candidate"]
    return json.dumps([candidate["ds_config"], candidate["model_settings"]], sort_keys=True)


def test_a_resume_neither_repeats_nor_loses_a_trial(start: Start, tmp_path: Path) -> None:
    first = start()
    first.wait_until(lambda: _num_finished(tmp_path) >= 2, "two trials have ended")
    _put_to_sleep(first)
    assert first.end(SIGKILL) == -SIGKILL
    *finished, running = _stored(tmp_path)
    assert running.state is TrialState.RUNNING

    second = start("--resume")
    second.wait_until(lambda: _num_finished(tmp_path) >= len(finished) + 2, "another has ended")
    _put_to_sleep(second)
    assert second.end(SIGINT) == INTERRUPTED, second.output
    assert "Traceback" not in second.output
    last = _stored(tmp_path)[-1]
    assert last.state is TrialState.FAIL
    assert "the driver ended" in last.user_attrs["reason"]

    third = start("--resume")
    assert third.process.wait(timeout=_START_S) == 0, third.output
    trials = _stored(tmp_path)
    assert trials[: len(finished)] == finished
    interrupted = [trial for trial in trials if trial.user_attrs.get("interrupted")]
    assert [trial.number for trial in interrupted] == [running.number, last.number]
    lasting = [trial for trial in trials if trial not in interrupted]
    assert len(lasting) == NUM_TRIALS
    assert len({_config(trial) for trial in lasting}) == NUM_TRIALS
    # Asked again before anything new.
    for trial in interrupted:
        assert _config(trials[trial.number + 1]) == _config(trial)
    assert (tmp_path / "studies/killed/ds_config.json").exists()
