"""Offload against the stage and against the optimizer."""

from typing import Any

import pytest

from autotune.job.cpu_threads import RankLauncher
from autotune.job.launcher import Launcher
from autotune.lint.rules.offload import RULES
from tests.lint.rules.asking import findings, reported, zero

CPU = {"device": "cpu"}
OPTIMIZER = "zero_optimization.offload_optimizer"
PARAM = "zero_optimization.offload_param"
FORCE = "zero_force_ds_cpu_optimizer"
ADAM = {"optimizer.type": "AdamW"}


@pytest.mark.parametrize(
    ("keys", "launch", "expected"),
    [
        (zero(2, offload_param=CPU), {}, [f"warning offload-param-stage {PARAM}"]),
        (
            zero(1, cpu_offload_param=True),
            {},
            ["warning offload-param-stage zero_optimization.cpu_offload_param"],
        ),
        (
            ADAM | zero(0, offload_optimizer=CPU),
            {},
            [
                f"error offload-optimizer-stage {OPTIMIZER}",
                "error offload-optimizer-stage zero_optimization.stage",
            ],
        ),
        ({f"{OPTIMIZER}.device": "cpu"}, {}, [f"error offload-optimizer-stage {OPTIMIZER}"]),
        (
            {f"{OPTIMIZER}.device": "cpu", "optimizer.type": "SGD"},
            {},
            [f"warning offload-optimizer-stage {OPTIMIZER}"],
        ),
        (
            zero(2, offload_optimizer={"device": "nvme", "nvme_path": "/local_nvme"}),
            {},
            [f"warning nvme-stage {OPTIMIZER}.device"],
        ),
        (
            zero(1, offload_optimizer={"device": "none", "ratio": 0.9}),
            {},
            [f"error partial-offload-stage {OPTIMIZER}.ratio"],
        ),
        (
            zero(3, offload_optimizer={"device": "cpu", "ratio": 0.9}) | {"optimizer.type": "Lion"},
            {},
            [f"error partial-offload-optimizer {OPTIMIZER}.ratio"],
        ),
        (
            zero(3, offload_optimizer=CPU),
            {"client_optimizer": "torch.optim.AdamW"},
            [
                f"error offload-client-optimizer {OPTIMIZER}",
                f"error offload-client-optimizer {FORCE}",
            ],
        ),
        (
            zero(2, offload_optimizer=CPU),
            {"client_optimizer": "torch.optim.Adafactor", "launcher": Launcher.HF},
            [f"warning offload-client-optimizer {OPTIMIZER}"],
        ),
        (
            zero(2, offload_optimizer=CPU),
            {"hf_args": {"optim": "adamw_bnb_8bit"}, "launcher": Launcher.HF},
            [f"warning offload-client-optimizer {OPTIMIZER}"],
        ),
        (
            zero(2, offload_optimizer=CPU) | {"optimizer.type": "LAMB"},
            {},
            [f"error offload-lamb {OPTIMIZER}"],
        ),
        (
            zero(2, offload_optimizer=CPU) | ADAM,
            {"started_by": RankLauncher.TORCHRUN},
            [f"warning offload-cpu-threads {OPTIMIZER}"],
        ),
        (
            zero(3, offload_optimizer={"device": "nvme", "nvme_path": "/local_nvme"}) | ADAM,
            {"started_by": RankLauncher.TORCHRUN, "gpus": 16, "nodes": 8},
            [f"warning offload-cpu-threads {OPTIMIZER}"],
        ),
        (
            zero(1, offload_optimizer=CPU) | ADAM,
            {"started_by": RankLauncher.ACCELERATE, "gpus": 1},
            [f"warning offload-cpu-threads {OPTIMIZER}"],
        ),
        (
            zero(2, offload_optimizer={"device": "cpu", "super_offload": True}),
            {},
            [f"warning super-offload {OPTIMIZER}.super_offload"],
        ),
        (
            zero(3, offload_optimizer={"device": "cpu", "super_offload": True})
            | {"optimizer.type": "Lion"},
            {},
            [f"error super-offload {OPTIMIZER}.super_offload"],
        ),
    ],
)
def test_a_fault_is_found(
    keys: dict[str, Any], launch: dict[str, Any], expected: list[str]
) -> None:
    assert reported(RULES, keys, **launch) == expected


@pytest.mark.parametrize(
    ("keys", "launch"),
    [
        (zero(2, offload_param={"device": "none", "pin_memory": True}), {}),
        (zero(2, offload_param=None), {}),
        (zero(3, offload_param=CPU, offload_optimizer=CPU) | ADAM, {}),
        (zero(0, offload_optimizer={"device": "none", "pin_memory": True}), {}),
        ({"zero_optimization.stage": "auto", "zero_optimization.offload_optimizer": CPU}, {}),
        (zero(2, offload_optimizer={"device": "cpu", "ratio": 1.0}), {}),
        (zero(3, offload_optimizer={"device": "cpu", "ratio": 0.4}) | ADAM, {}),
        (zero(3, offload_optimizer={"device": "cpu", "ratio": 0.4}), {}),
        (zero(2, offload_optimizer=CPU), {"client_optimizer": "DeepSpeedCPUAdam"}),
        (zero(2, offload_optimizer=CPU) | {FORCE: False}, {"client_optimizer": "SGD"}),
        (
            zero(2, offload_optimizer=CPU),
            {"client_optimizer": "torch.optim.AdamW", "launcher": Launcher.HF},
        ),
        (
            zero(2, offload_optimizer=CPU),
            {"hf_args": {"optim": "paged_adamw_32bit"}, "launcher": Launcher.HF},
        ),
        (
            zero(2, offload_optimizer=CPU) | ADAM,
            {"hf_args": {"optim": "adafactor"}, "launcher": Launcher.HF},
        ),
        (zero(2, offload_optimizer=CPU) | ADAM, {"started_by": RankLauncher.DEEPSPEED, "gpus": 8}),
        (
            zero(2, offload_optimizer=CPU) | ADAM,
            {"started_by": RankLauncher.TORCHRUN, "cpu_threads": 1},
        ),
        (
            zero(2, offload_optimizer=CPU) | ADAM,
            {"started_by": RankLauncher.TORCHRUN, "gpus": 8, "nodes": 8},
        ),
        (zero(2) | ADAM, {"started_by": RankLauncher.ACCELERATE}),
        (zero(1) | {"optimizer.type": "Lamb"}, {}),
        (zero(3, offload_optimizer={"device": "cpu", "super_offload": True}) | ADAM, {}),
        (zero(2, offload_optimizer="cpu", offload_param=[]), {}),
    ],
)
def test_a_legal_neighbour_is_left_alone(keys: dict[str, Any], launch: dict[str, Any]) -> None:
    assert reported(RULES, keys, **launch) == []


def test_an_offload_of_parameters_that_cannot_act_is_removed() -> None:
    [found] = findings(RULES, zero(2, offload_param=CPU))
    assert found.fix is not None
    config = {"zero_optimization": {"stage": 2, "offload_param": CPU}}
    assert found.fix.applied(config) == {"zero_optimization": {"stage": 2}}
