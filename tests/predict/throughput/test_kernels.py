import csv
from statistics import median

from autotune.predict.throughput.kernels import (
    ATTENTION_BACKWARD,
    KERNEL_S,
    attention_s,
    matmul_s,
)
from tests.predict.rows import DATA, H200

SHARE = 0.9
"""Of the best products, back to back on a card that does nothing else."""
HOST_S = 5e-6
"""What a call from Python adds where the card is quicker than the host."""


def test_products_of_all_shapes_are_near_the_measured_ones() -> None:
    errors = []
    with (DATA / "h200_matmul.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            shape = int(row["rows"]), int(row["inner"]), int(row["columns"])
            predicted = matmul_s(shape, H200, precision="bf16") / SHARE + KERNEL_S + HOST_S
            errors.append(abs(predicted / float(row["s"]) - 1))
    assert len(errors) == 402
    assert median(errors) <= 0.06


def test_weight_gradients_of_few_tokens_are_slower() -> None:
    """1,024 tokens: measured 573 against 663 to 734 TFLOP/s."""
    forward = matmul_s((1024, 4096, 11008), H200, precision="bf16")
    gradient = matmul_s((11008, 1024, 4096), H200, precision="bf16")
    assert 1.05 < gradient / forward < 1.2


def test_attention_is_near_the_measured_one_at_every_length() -> None:
    errors = []
    with (DATA / "h200_attention.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            batch, seq_len, heads, head = (
                int(row[name]) for name in ("batch", "seq_len", "heads", "head_size")
            )
            operations = 2 * batch * heads * seq_len**2 * head
            predicted = attention_s(
                operations, H200, seq_len=seq_len, precision="bf16", implementation="sdpa"
            )
            predicted *= 1 if row["pass"] == "forward" else ATTENTION_BACKWARD
            if float(row["s"]) > 1.5e-4:  # below, the host's calls are what was measured
                errors.append(abs(predicted / SHARE / float(row["s"]) - 1))
    assert len(errors) >= 14
    assert median(errors) <= 0.1


def test_small_products_wait_for_memory() -> None:
    tiny = matmul_s((1, 4096, 4096), H200, precision="bf16")
    assert tiny >= 2 * 4096 * 4096 / H200.memory_bytes_per_s
