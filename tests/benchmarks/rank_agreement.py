"""Whether emulation and the speed model order configs as real ranks do.

``python -m tests.benchmarks.rank_agreement run studies/NAME --output ranked.jsonl [--probe FILE]``
runs the trials of a measured study that took steps once more, emulated, with as many ranks; those
that the file already has are not run again.
``... table studies/NAME ranked.jsonl [--probe FILE]`` sets them, and what the speed model says
without having seen any, beside the measured ones and prints Kendall's tau.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from autotune.evaluate import TrialRequest
from autotune.job.device import find_device
from autotune.predict.links.probe_file import read_probe
from autotune.predict.throughput import SpeedSurroundings, predict_throughput
from autotune.study.candidate import TrialRecord, training_of
from autotune.study.folder import STUDY_DB
from autotune.study.outcome import Status
from autotune.study.store import StoredStudy
from autotune.study.view import StudyView
from tests.benchmarks.real_cards import EMULATED, Conditions, opened

_APART = 0.05


def read_study(folder: Path) -> StudyView:
    """Read the study of a folder."""
    stored = StoredStudy(folder.name, f"sqlite:///{folder / STUDY_DB}", create=False)
    try:
        return StudyView.of(stored)
    finally:
        stored.close()


def read_rows(file: Path) -> list[dict[str, Any]]:
    """Return the emulated trials of a file."""
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def ranked(study: StudyView) -> list[TrialRecord]:
    """Return the trials that took steps, short ones too."""
    return [
        record
        for record in study.records
        if record.outcome is not None
        and record.outcome.measurement is not None
        and record.outcome.status in (Status.COMPLETE, Status.SLOW)
    ]


def run(folder: Path, output: Path, probe: Path | None) -> None:
    """Emulate the study's trials that the file does not have yet."""
    study = read_study(folder)
    done = {row["trial"] for row in read_rows(output)} if output.exists() else set()
    left = [record for record in ranked(study) if record.number not in done]
    setup = study.setup
    with (
        TemporaryDirectory() as logs,
        opened(setup.workload.world_size, emulate=True) as pool,
        output.open("a", encoding="utf-8") as file,
    ):
        evaluator = Conditions.of(
            pool, kind=EMULATED, probe=probe, ceiling_bytes=setup.ceiling_bytes, logs=Path(logs)
        ).evaluator(setup.workload)

        def one(record: TrialRecord) -> str:
            outcome = evaluator.evaluate(
                TrialRequest(
                    number=record.number,
                    label=f"trial-{record.number:04d}",
                    ds_config=record.candidate.ds_config,
                    model_settings=record.candidate.model_settings,
                ),
                lambda *_: None,
            )
            found: dict[str, Any] = {
                "trial": record.number,
                "status": outcome.status.value,
                "reason": outcome.failure.reason if outcome.failure else None,
                "duration_s": round(outcome.duration_s, 2),
            }
            if outcome.measurement is not None:
                found["step_s"] = [round(s, 4) for s in outcome.measured.all_step_s]
                found["host_loop_ms"] = [round(s * 1e3, 3) for s in outcome.measured.host_loop_s]
                found["tokens_per_s"] = outcome.tokens_per_s.mean
                found["peak_bytes"] = outcome.measured.peak_bytes
            return json.dumps(found)

        with ThreadPoolExecutor(pool.num_groups) as executor:
            for line in executor.map(one, left):
                file.write(line + "\n")
                file.flush()
                print(line[:200], file=sys.stderr)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """One config's tokens/s, three ways."""

    record: TrialRecord
    measured: float
    emulated: float | None
    """None where the emulated trial did not complete."""
    modelled: float

    @property
    def is_complete(self) -> bool:
        """Whether its real ranks ran until their interval was tight."""
        assert self.record.outcome is not None
        return self.record.outcome.status is Status.COMPLETE


def compare(
    study: StudyView, rows: Sequence[Mapping[str, Any]], around: SpeedSurroundings
) -> list[Ranked]:
    """Return every trial that took steps, the fastest first."""
    emulated = {row["trial"]: row.get("tokens_per_s") for row in rows}
    found = []
    for record in ranked(study):
        assert record.outcome is not None
        training = training_of(record.candidate, study.setup.workload)
        found.append(
            Ranked(
                record=record,
                measured=record.outcome.measured.tokens_per_s.mean,
                emulated=emulated.get(record.number),
                modelled=predict_throughput(training, around).tokens_per_s,
            )
        )
    return sorted(found, key=lambda one: -one.measured)


def kendall(pairs: Sequence[tuple[float, float]]) -> float:
    """Return Kendall's tau."""
    from scipy.stats import kendalltau

    one, other = [a for a, _ in pairs], [b for _, b in pairs]
    return float(kendalltau(one, other).statistic)


def taus(found: Sequence[Ranked]) -> dict[str, float]:
    """Return Kendall's tau of both ways against the measured order."""
    return {
        "emulated": kendall([(r.measured, r.emulated) for r in found if r.emulated is not None]),
        "modelled": kendall([(r.measured, r.modelled) for r in found]),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class InOrder:
    """Pairs of configs whose measured speeds lie clearly apart, and how many each way orders so."""

    pairs: int
    emulated: int
    modelled: int


def in_order(found: Sequence[Ranked], *, apart: float) -> InOrder:
    """Count the pairs of emulated configs that are right way round.

    Args:
        found: the configs.
        apart: pairs whose measured speeds are closer than this, relative, are left out: chance
            decides those among real ranks as well.
    """
    clear = [
        (one, other)
        for one in found
        for other in found
        if one.emulated is not None
        and other.emulated is not None
        and one.measured > (1 + apart) * other.measured
    ]
    return InOrder(
        pairs=len(clear),
        emulated=sum((a.emulated or 0) > (b.emulated or 0) for a, b in clear),
        modelled=sum(a.modelled > b.modelled for a, b in clear),
    )


def surroundings(study: StudyView, probe: Path | None) -> SpeedSurroundings:
    """Return what the study ran on, as the speed model knows it; all ranks on one node."""
    devices = study.setup.environment["devices"]
    name = str(devices[0]).rpartition("NVIDIA ")[2].lower()
    return SpeedSurroundings.of(
        find_device(name),
        local_ranks=study.setup.workload.world_size,
        probe=read_probe(probe) if probe is not None else None,
    )


def print_table(found: Sequence[Ranked]) -> None:
    """Print the configs as a Markdown table, and Kendall's tau."""
    print("| trial | measured tokens/s | emulated | modelled | config |")
    print("| --- | --- | --- | --- | --- |")
    for one in found:
        measured = f"{one.measured:,.0f}" + ("" if one.is_complete else " (stopped early)")
        emulated = "-" if one.emulated is None else f"{one.emulated / one.measured - 1:+.1%}"
        modelled = f"{one.modelled / one.measured - 1:+.1%}"
        values = one.record.candidate.values
        keys = ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in values.items())
        print(f"| {one.record.number} | {measured} | {emulated} | {modelled} | {keys} |")
    complete = [one for one in found if one.is_complete]
    for name, some in (("complete", complete), ("all that took steps", found)):
        tau = taus(some)
        print(
            f"Kendall's tau, {len(some)} {name}: emulated {tau['emulated']:.2f}, "
            f"modelled {tau['modelled']:.2f}"
        )
    order = in_order(found, apart=_APART)
    print(
        f"of {order.pairs} pairs more than {_APART:.0%} apart, in the measured order: "
        f"emulated {order.emulated}, modelled {order.modelled}"
    )


def main() -> None:
    """Emulate a study's trials, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run")
    runs.add_argument("study", type=Path)
    runs.add_argument("--output", type=Path, required=True)
    runs.add_argument("--probe", type=Path)
    tables = commands.add_parser("table")
    tables.add_argument("study", type=Path)
    tables.add_argument("rows", type=Path)
    tables.add_argument("--probe", type=Path)
    given = parser.parse_args()
    if given.command == "run":
        run(given.study, given.output, given.probe)
        return
    study = read_study(given.study)
    print_table(compare(study, read_rows(given.rows), surroundings(study, given.probe)))


if __name__ == "__main__":
    main()
