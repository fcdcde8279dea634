"""The command line that people's scripts rely on."""

import re
from typing import Any

import pytest
import typer

from autotune.cli.main import app
from tests.cli.calls import autotune_here

JOB = """
    --activation-checkpointing --attn-implementation --client-optimizer --cpu-threads --devices
    --global-batch-size --gpu-memory --gpu-type --gpus --gpus-per-node --hf-args --host-memory --job
    --largest-parameter --launcher --link --memory-ceiling --model --nodes --params
    --pipeline-stages --precision --probe --seq-len --tensor-parallel --trainable-params
"""
"""What describes a job; the same for every command that is about one."""
COMMANDS = {
    "run": f"""{JOB}
        --base --confirm-rounds --device --evaluator --json --ray-address --resume --sampler
        --screen --seed --space --storage --study --target-gpus --time-budget --timed --trials
    """,
    "plan": f"{JOB} ds_config --json --space --strict --tokens",
    "job": f"{JOB} ds_config --json",
    "probe": "--device --gpus --json --nvme-path --output --ray-address",
    "replay": "landscape --json --sampler --save --seeds --trials",
    "gate": f"""{JOB}
        ds_config --accepted --ask-deepspeed --baseline --diff --explain --fix --fix-output
        --format --ignore --list-rules --max-age --max-regression --measure --ray-address --strict
        --write-accepted
    """,
    "export": "study --folder --json --storage",
    "dashboard": "study --host --port --storage",
    "doctor": "--device --fix --json",
}


def _commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    commands: dict[str, Any] = group.commands
    return commands


def test_no_option_comes_or_goes_unnoticed() -> None:
    found = {
        name: sorted(
            option
            for parameter in command.params
            for option in (parameter.opts if parameter.opts[0] != "--help" else [])
        )
        for name, command in _commands().items()
    }
    assert found == {name: sorted(options.split()) for name, options in COMMANDS.items()}


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_every_command_and_option_has_help(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    call = autotune_here(*filter(None, [command, "--help"]), capsys=capsys)
    assert call.code == 0
    assert "Usage" in call.out
    assert call.err == ""
    if command:
        for parameter in _commands()[command].params:
            assert parameter.help, parameter.name


@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_of_a_help_text_is_swallowed(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "500")
    printed = " ".join(autotune_here(command, "--help", capsys=capsys).out.split())
    for parameter in _commands()[command].params:
        for default in re.findall(r"\[default: .*?\]", parameter.help):
            assert default in printed


def test_help_says_what_the_exit_codes_mean(capsys: pytest.CaptureFixture[str]) -> None:
    out = " ".join(autotune_here("--help", capsys=capsys).out.split())
    for code in (
        "0 yes",
        "1 the config fails the gate, or nothing fits",
        "3 the pool failed",
        "130",
    ):
        assert code in out


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    from autotune import __version__

    assert autotune_here("--version", capsys=capsys).out == f"autotune {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", "--model", "tiny"],
        ["run", "--model", "tiny", "--gpus", "0"],
        ["run", "--model", "tiny", "--gpus", "two"],
        ["run", "--model", "tiny", "--gpus", "2", "--trials", "0"],
        ["run", "--model", "tiny", "--gpus", "2", "--confirm-rounds", "1"],
        ["run", "--no-such-option"],
        ["no-such-command"],
        ["export"],
    ],
    ids=" ".join,
)
def test_a_call_that_cannot_be_parsed_ends_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    call = autotune_here(*arguments, capsys=capsys)
    assert call.code == 2
    assert call.out == ""
    assert "Traceback" not in call.err
