"""The memory model's error on each row, and by topic."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.job.ceiling import GIB
from tests.benchmarks.memory_rows.lines import predict
from tests.benchmarks.memory_rows.progress import say


def print_table(lines: Sequence[Mapping[str, Any]], gpu_type: str) -> None:
    """Print the model's error on each row, and by topic."""
    errors: dict[str, list[float]] = defaultdict(list)
    say(
        f"\n{'row':24}{'predicted':>10}{'measured':>10}{'error':>9}{'init':>9}{'reserved':>10}"
        f"{'host':>9}  at the peak"
    )
    for line in lines:
        try:
            estimate = predict(line, gpu_type)
        except Exception as error:  # noqa: BLE001  the model may be absent, or refuse a row
            say(f"{line['row_id']:24} not predicted: {type(error).__name__}: {error}")
            continue
        device = estimate.device
        error_of = {
            column: _error(predicted, line[column])
            for column, predicted in (
                ("peak_allocated_gib", device.peak_allocated_bytes),
                ("init_allocated_gib", device.init_allocated_bytes),
                ("peak_reserved_gib", device.peak_reserved_bytes),
                ("host_rss_gib", estimate.host.rank_bytes),
            )
        }
        peak = error_of["peak_allocated_gib"]
        complete = line["status"] == "ok"
        say(
            f"{line['row_id']:24}{device.peak_allocated_bytes / GIB:10.3f}"
            f"{line['peak_allocated_gib']:>10}{_percent(peak):>9}"
            f"{_percent(error_of['init_allocated_gib']):>9}"
            f"{_percent(error_of['peak_reserved_gib']):>10}{_percent(error_of['host_rss_gib']):>9}"
            f"  {device.part} {device.detail}{'' if complete else '  ' + line['status']}"
        )
        if peak is not None and complete:
            errors[str(line["topic"])].append(peak)
    say(f"\n{'topic':28}{'rows':>5}{'mean |e|':>10}{'lowest':>9}{'highest':>9}")
    for topic, found in errors.items():
        _summary(topic, found)
    if errors:
        _summary("all", [error for found in errors.values() for error in found])


def _summary(topic: str, errors: Sequence[float]) -> None:
    mean = statistics.fmean(map(abs, errors))
    say(
        f"{topic:28}{len(errors):5}{_percent(mean):>10}{_percent(min(errors)):>9}"
        f"{_percent(max(errors)):>9}"
    )


def _error(predicted_bytes: int | None, measured_gib: Any) -> float | None:
    """Return the relative error; negative is too low."""
    measured = float(measured_gib or 0)
    if predicted_bytes is None or not measured:
        return None
    return predicted_bytes / GIB / measured - 1


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:+.2%}"
