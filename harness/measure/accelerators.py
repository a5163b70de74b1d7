"""How many multiply-accumulates devices can make at most, by their makers' data sheets, and what that says of another.

Rates are of dense matrix products: bf16 of tensor cores, fp32 without them, which is torch's default. Data sheets
count two operations a multiply-accumulate.
"""

from __future__ import annotations

import re

A100 = "A100"
_TFLOPS: dict[str, dict[str, float]] = {
    # A part of the name that torch gives, the most particular first.
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
    """Multiply-accumulates a second at most, by a device's name as torch gives it; None for one that is not listed."""
    for name, rates in _TFLOPS.items():
        if re.search(rf"\b{name}\b", device):
            return rates[precision] * 1e12 / 2
    return None


def a100_seconds(macs: float, rate: float, peak: float, precision: str) -> tuple[float, float]:
    """An estimate: what one A100 would take for work that another device did, between two assumptions.

    One is that it would reach the same share of its peak rate as the device, the other that it would reach the same
    rate, as far as its peak allows. Work that is bound by arithmetic takes longer on a device of a lower peak; what is
    bound by launches and by the processor does not.

    Args:
        macs: multiply-accumulates of the work.
        rate: multiply-accumulates a second that the device reached.
        peak: of that device, by `peak_macs`.

    Returns:
        Seconds at the same share, and at the same rate.
    """
    ours = peak_macs(A100, precision)
    assert ours is not None
    return macs * peak / (rate * ours), macs / min(rate, ours)
