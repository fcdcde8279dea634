"""Every step after the rules, and every writer, handles any config."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from autotune.gating import gate
from autotune.gating.fixes.fix import fix_config
from autotune.gating.request import STDIN
from autotune.report.gate import WRITERS, print_result
from autotune.search.prelaunch_lint import lint_for
from tests.asked import gate_request
from tests.gating.records import write
from tests.lint.mutations import mutated
from tests.search.setting import tiny_workload

NUM_CONFIGS = 150


def test_the_gate_handles_every_mutated_config(tmp_path: Path, record: dict[str, Any]) -> None:
    baseline = write(tmp_path / "record.json", record)
    request = gate_request(
        ds_config=STDIN, model="125m", gpus=2, gpu_type="l4", host_memory="64", baseline=baseline
    )
    results = []
    for config in mutated(5, NUM_CONFIGS):
        text = json.dumps(config).encode()
        result = gate(request, text=text)
        fixed = fix_config(request, text)
        again = fix_config(request, fixed.after.encode())
        assert again.after == fixed.after, config
        print_result(result)
        results.append(result)
    for form, write_all in WRITERS.items():
        written = write_all(results, strict=True)
        if form in ("json", "sarif"):
            json.loads(written)
        elif form == "junit":
            ET.fromstring(written)


def test_a_search_handles_every_mutated_config() -> None:
    workload = tiny_workload()
    for config in mutated(6, NUM_CONFIGS):
        lint_for(workload, config)
