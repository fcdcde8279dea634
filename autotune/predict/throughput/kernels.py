"""Single kernels on a device: matrix products by shape, fused attention by length.

At the rate of the device's best products, which `Rates.matmul` scales to a step's shapes. Shapes
were measured on an H200 with torch 2.11: tests/data/h200_matmul.csv and h200_attention.csv.
"""

from autotune.job.device import Device

KERNEL_S = 5e-6
"""Device time of an empty kernel: start, drain, gap to the next."""
COPY_SHARE = 0.85
"""Fraction of a device's memory rate that long copy kernels reach."""
RAMP_INNER = 100
"""Filling and draining the pipeline over a product's inner dimension costs as much as this many
more elements of it: weight gradients of few tokens are slower than their operations suggest."""
ATTENTION_SHARE = 0.95
"""Fused attention's rate at long sequences, as a fraction of that of large matrix products."""
FLASH_2_ON_HOPPER = 0.58
"""FlashAttention 2 does not use Hopper's instructions: about 350 to 400 of 989 TFLOP/s (Shah et
al., FlashAttention-3), where sdpa reaches 600; the same on older devices."""
ATTENTION_HALF_TOKENS = 800
"""The sequence length at which it reaches half of that."""
ATTENTION_BACKWARD = 3.2
"""Backward's time over forward's: five products to two, at a lower rate."""


def matmul_s(shape: tuple[int, int, int], device: Device, *, precision: str) -> float:
    """Return the seconds of one product of rows x inner by inner x columns.

    Small products are slower: they are bound by reading their operands, or by the kernel's fixed
    cost.

    Args:
        shape: rows, inner, columns.
        device: the device.
        precision: bf16, fp16 or fp32.
    """
    rows, inner, columns = shape
    element_bytes = 4 if precision == "fp32" else 2
    operations = 2 * rows * (inner + RAMP_INNER) * columns
    moved = element_bytes * (rows * inner + inner * columns + rows * columns)
    rate = _best_share(device, precision) * device.flops(precision)
    return max(operations / rate, moved / device.memory_bytes_per_s)


def attention_s(
    operations: float, device: Device, *, seq_len: int, precision: str, implementation: str
) -> float:
    """Return the seconds of fused attention's forward.

    Args:
        operations: of both products, counted over the positions that are not masked.
        device: the device.
        seq_len: tokens of a sequence.
        precision: bf16, fp16 or fp32.
        implementation: Hugging Face's name of it.
    """
    share = ATTENTION_SHARE
    if implementation == "flash_attention_2" and device.is_hopper:
        share *= FLASH_2_ON_HOPPER
    rate = share * _best_share(device, precision) * device.flops(precision)
    return operations * (1 + ATTENTION_HALF_TOKENS / seq_len) / rate


def _best_share(device: Device, precision: str) -> float:
    """Return the fraction of the peak in the best large products; nearly 1 without tensor cores."""
    return 1.0 if precision == "fp32" else device.matmul_share
