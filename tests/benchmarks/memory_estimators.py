"""Benchmark: this model beside DeepSpeed's and Accelerate's estimators, on the measured rows.

Run by hand: ``python -m tests.benchmarks.memory_estimators``. Prints a Markdown table of errors of
the allocated peak. The other two are asked for what they offer:

- DeepSpeed 0.19.8, estimate_zero*_model_states_mem_needs in runtime/zero/stage_1_and_2.py and
  stage3.py: the model states of one GPU under ZeRO 2 or 3;
- Accelerate, estimate_training_usage in commands/estimate.py: training with Adam in mixed
  precision, of which the command shows the largest figure; it knows no sharding.
"""

from collections.abc import Callable

from autotune.predict.memory.closed_form import estimate_closed_form
from autotune.predict.memory.summary import weigh
from tests.predict.rows import H200, Row, estimate, rows

Estimator = Callable[[Row], float | None]


def replay(row: Row) -> float:
    """This project's verdict."""
    return estimate(row.name).device.peak_allocated_bytes


def closed_form(row: Row) -> float:
    """This project's screening."""
    return estimate_closed_form(
        row.training, workspace_bytes=H200.workspace_bytes
    ).peak_allocated_bytes


def deepspeed(row: Row) -> float | None:
    """Return DeepSpeed's estimate; it has none for stage 1."""
    training, weighted = row.training, weigh(row.training)
    total, ranks = sum(p.num_elements for p in weighted.parameters), training.world_size
    zero = training.zero
    if zero.stage == 2:
        if zero.offload_optimizer.enabled:
            return 2 * total
        return 2 * total + 18 * total / ranks
    if zero.stage != 3:
        return None
    largest_layer = 4 * max(weighted.embedding, weighted.layer)
    if not zero.offload_optimizer.enabled:
        return largest_layer + 18 * total / ranks
    if zero.offload_param.enabled:
        return largest_layer
    return largest_layer + 2 * total / ranks


def accelerate(row: Row) -> float:
    """Return the largest of Accelerate's figures: the optimizer's two fp32 states."""
    return 8 * sum(p.num_elements for p in weigh(row.training).parameters)


ESTIMATORS: dict[str, Estimator] = {
    "autotune, replay": replay,
    "autotune, closed form": closed_form,
    "DeepSpeed `estimate_zero*_model_states_mem_needs`": deepspeed,
    "`accelerate estimate-memory`": accelerate,
}


def main() -> None:
    """Print the table."""
    completed = [row for row in rows() if row.completed]
    print("| estimator | rows | mean error | 95th percentile | lowest | highest |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, estimator in ESTIMATORS.items():
        errors = sorted(
            row.error(value, "peak_allocated_gib")
            for row in completed
            if (value := estimator(row)) is not None
        )
        sizes = sorted(abs(error) for error in errors)
        cells = (
            f"{len(errors)}",
            f"{sum(sizes) / len(sizes):.2%}",
            f"{sizes[round(0.95 * len(sizes)) - 1]:.2%}",
            f"{errors[0]:+.2%}",
            f"{errors[-1]:+.2%}",
        )
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
