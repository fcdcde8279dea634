"""What a preloaded parent is worth: one thread, and hardly an import left for its forks."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune.pool.slot import _parent_environment
from autotune.trial.spec import Place, TrialSpec

pytestmark = pytest.mark.ray

_SCRIPT = """
import json, os, sys
from pathlib import Path
from autotune.trial.preload import preload

preload("llama", device_kind="cpu")
sent = json.load(sys.stdin)
threads = len(list(Path("/proc/self/task").iterdir()))
imported = {}
for name, spec in sent["specs"].items():
    reading, writing = os.pipe()
    if os.fork() == 0:
        from autotune.trial.rank import run_rank
        events = os.open(sent["events"], os.O_WRONLY | os.O_CREAT)
        before = set(sys.modules)
        code = run_rank(spec, sent["place"], events, program="trial")
        new = sorted(set(sys.modules) - before) if code == 0 else ["the trial failed"] * 1_000
        os.write(writing, json.dumps(new).encode())
        os._exit(0)
    os.close(writing)
    imported[name] = json.loads(os.fdopen(reading, "rb").read())
    os.wait()
print(json.dumps({"threads": threads, "imported": imported}))
"""


def test_a_fork_of_the_parent_is_safe_and_has_nothing_left_to_import(
    make_spec: Callable[..., TrialSpec], tmp_path: Path
) -> None:
    log = tmp_path / "rank.log"
    place = Place(
        rank=0,
        world_size=1,
        local_rank=0,
        local_world_size=1,
        master_addr="127.0.0.1",
        master_port=0,
        log_path=str(log),
    )
    specs = {
        f"stage {stage}, checkpointing {on}": make_spec(
            {"zero_optimization.stage": stage}, gpus=1, activation_checkpointing=on
        ).to_json()
        for stage, on in ((1, False), (3, True))
    }
    sent = {"specs": specs, "place": place.to_json(), "events": str(tmp_path / "events")}
    result = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        input=json.dumps(sent),
        capture_output=True,
        text=True,
        env=os.environ | _parent_environment("cpu"),
        check=False,
    )
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout.splitlines()[-1])
    assert answer["threads"] == 1
    for name, modules in answer["imported"].items():
        assert len(modules) < 30, (name, modules, log.read_text(encoding="utf-8")[-2_000:])
