"""Peak multiply-accumulate rates of GPUs from their data sheets, and timing of a call.

The rates are those of dense matrix products: bf16 on tensor cores, fp32 without them, which is torch's default. Data
sheets count two operations per multiply-accumulate.
"""

import re
from collections.abc import Callable
from statistics import median

import torch

from harness.measure.latency import seconds_of

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
    """Peak multiply-accumulates per second, by torch's name of the device; None if it is not listed."""
    for name, rates in _TFLOPS.items():
        if re.search(rf"\b{name}\b", device):
            return rates[precision] * 1e12 / 2
    return None


def a100_seconds(macs: float, rate: float, peak: float, precision: str) -> tuple[float, float]:
    """Estimated seconds on one A100 for work measured on another device, under two assumptions.

    The A100 reaches the same share of its peak rate as the device (compute-bound work), or the same rate, limited by
    its peak (work limited by kernel launches and the CPU).
    """
    a100_peak = peak_macs(A100, precision)
    assert a100_peak is not None
    return macs * peak / (rate * a100_peak), macs / min(rate, a100_peak)


LEAST_CALLS, PATIENCE = 3, 10
"""Minimum number of calls, as long as they take at most this multiple of the minimum time."""


def median_seconds(work: Callable[[], object], device: torch.device, min_s: float) -> float:
    """Median seconds of a call, after a warm-up call.

    In a short measurement, one call delayed by the machine would dominate the mean.
    """
    work()
    calls: list[float] = []
    while (elapsed := sum(calls)) < min_s or (len(calls) < LEAST_CALLS and elapsed < PATIENCE * min_s):
        calls.append(seconds_of(work, device))
    return median(calls)
