"""Whatever a file holds, the gate answers; it never fails."""

import json
import random
from collections.abc import Iterator

from autotune.job.launcher import Launcher
from autotune.lint.check import lint, verdict_of
from autotune.lint.document.document import read_document
from autotune.lint.finding import Finding, Verdict
from autotune.lint.subject import Launch
from tests.lint.mutations import mutated

SEED = 7
COUNT = 10_000
LAUNCHES = (
    Launch(),
    Launch(gpus=8, nodes=2, pipeline_stages=2, tensor_parallel=2),
    Launch(launcher=Launcher.HF, gpus=4, hf_args={"per_device_train_batch_size": 2, "bf16": True}),
    Launch(gpus=3, client_optimizer="torch.optim.Adafactor", num_parameters=7_000_000_000),
)


def texts() -> Iterator[bytes]:
    """Yield mutated configs as text, one in ten of them damaged as a text."""
    chance = random.Random(SEED)
    for config in mutated(SEED, COUNT):
        text = json.dumps(config, ensure_ascii=chance.random() < 0.5).encode()
        if chance.random() < 0.1:
            place = chance.randrange(len(text))
            damage = chance.choice((b"", b",", b'"', b"{", b"]", b"\xff", b"# ", b"0,5", b"\n"))
            text = text[:place] + damage + text[place + chance.randint(0, 3) :]
        yield text


def test_no_config_whatever_ends_in_an_exception() -> None:
    verdicts = set()
    for place, text in enumerate(texts()):
        verdicts.add(verdict_of(findings(text, LAUNCHES[place % len(LAUNCHES)])))
    assert verdicts == set(Verdict)


def findings(text: bytes, launch: Launch) -> list[Finding]:
    """Read and lint a text; an exception names the text it happened with."""
    try:
        document = read_document(text, name="ds_config.json", launch=launch)
        found = list(document.findings)
        if document.subject is not None:
            found += lint(document.subject)
        # A reader sees all of it, in JSON at least.
        json.dumps([finding.to_json() for finding in found])
    except Exception as error:
        error.add_note(f"with {text!r}")
        raise
    return found
