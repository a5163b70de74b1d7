"""Peak multiply-accumulate rates of GPUs by their data sheets, and estimates of run time on an A100.

Rates are those of dense matrix products: bf16 on tensor cores, fp32 without them, which is torch's default. Data sheets
count two operations per multiply-accumulate.
"""

from __future__ import annotations

import re

A100 = "A100"
_TFLOPS: dict[str, dict[str, float]] = {
    # Part of the device name that torch reports, the most specific first.
    "H100 PCIe": {"bf16": 756, "fp32": 51},
    "H100 NVL": {"bf16": 835, "fp32": 60},
    "H100": {"bf16": 989, "fp32": 67},
    "H200 NVL": {"bf16": 835, "fp32": 60},
    "H200": {"bf16": 989, "fp32": 67},
    A100: {"bf16": 312, "fp32": 19.5},
    "A10G": {"bf16": 70, "fp32": 35},
    "L40S": {"bf16": 362, "fp32": 91.6},
}


def peak_macs(device: str, precision: str) -> float | None:
    """Peak multiply-accumulates a second by torch's name of the device; None if it is not listed."""
    for name, rates in _TFLOPS.items():
        if re.search(rf"\b{name}\b", device):
            return rates[precision] * 1e12 / 2
    return None


def a100_seconds(macs: float, rate: float, peak: float, precision: str) -> tuple[float, float]:
    """Estimated time of one A100 for work that another device did, under two assumptions.

    Either the A100 reaches the same share of its peak rate as the device (compute-bound work), or it reaches the same
    rate, as far as its peak allows (work bound by kernel launches and by the processor).

    Args:
        macs: multiply-accumulates of the work.
        rate: multiply-accumulates a second that the device reached.
        peak: peak rate of that device, by `peak_macs`.

    Returns:
        Seconds at the same share, and at the same rate.
    """
    ours = peak_macs(A100, precision)
    assert ours is not None
    return macs * peak / (rate * ours), macs / min(rate, ours)
