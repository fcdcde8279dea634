"""What is loaded when: a help text must not cost seconds, nor a slot the memory of torch."""

import json
import subprocess
import sys

import pytest

_HEAVY = ("torch", "ray", "deepspeed", "optuna", "transformers")


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        pytest.param("import autotune", (), id="the package"),
        pytest.param(
            "from autotune.cli.main import app; app(['--help'], standalone_mode=False)",
            (),
            id="autotune --help",
        ),
        pytest.param(
            "from autotune.cli.main import app; app(['run', '--help'], standalone_mode=False)",
            (),
            id="autotune run --help",
        ),
        pytest.param("import autotune.pool.slot", (), id="a slot"),
        pytest.param("import autotune.pool.watcher", (), id="the watcher"),
        pytest.param("import autotune.pool.pool", ("ray",), id="the driver's pool"),
        pytest.param("import autotune.tuning", ("ray", "optuna"), id="the driver"),
    ],
)
def test_nothing_heavy_is_loaded_before_it_is_needed(code: str, allowed: tuple[str, ...]) -> None:
    script = f"import sys, json\n{code}\nprint(json.dumps(sorted(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = json.loads(result.stdout.splitlines()[-1])
    assert {name for name in _HEAVY if name in loaded} <= set(allowed)
