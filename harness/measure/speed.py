"""Multiply-accumulate rates: a model's on this machine, for estimates of time, and GPUs' by their data sheets.

The latter are those of dense matrix products: bf16 on tensor cores, fp32 without them, which is torch's default. Data
sheets count two operations per multiply-accumulate.
"""

import re
from collections.abc import Callable
from statistics import median

import torch

from harness.measure.estimate import FORWARD_AND_BACKWARD, PassCosts, Speed
from harness.measure.inputs import batch_of
from harness.measure.latency import seconds_of
from harness.measure.model_modes import preserve_state
from zoo import Captioner, Visual
from zoo.decoding import greedy
from zoo.layers.looped import exactly

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
    """Estimated seconds of one A100 for work that another device did, under two assumptions.

    Either the A100 reaches the same share of its peak rate as the device (compute-bound work), or it reaches the same
    rate, as far as its peak allows (work bound by kernel launches and by the processor).
    """
    ours = peak_macs(A100, precision)
    assert ours is not None
    return macs * peak / (rate * ours), macs / min(rate, ours)


CAPTIONS = 5
LEAST_CALLS, PATIENCE = 3, 10
"""Calls whose median says more than their mean, and how many times the wanted seconds they may take for it."""


def measure_speed(
    model: Captioner, visual: Visual, costs: PassCosts, length: int, *, images: int = 8, min_s: float = 1.0
) -> Speed:
    """Time training passes and greedy decoding on copies of one image; the model is left as it was."""
    batch = batch_of(visual, images)
    device = next(model.parameters()).device
    tokens = torch.ones(images * CAPTIONS, length, dtype=torch.long, device=device)

    def train() -> None:
        model.zero_grad(set_to_none=True)
        loss = model(batch, tokens).sum()
        with exactly(loss):  # as in training, gradients are computed outside of autocast
            loss.backward()

    def decode() -> None:
        greedy(model, model.encode(batch), max_len=length, bos=1, eos=model.vocab_size - 1)

    per_pass = images * (costs.encoder + costs.backbone + CAPTIONS * costs.caption) * FORWARD_AND_BACKWARD
    with preserve_state(model):
        model.train()
        step_s = median_seconds(train, device, min_s)
        model.eval()
        with torch.no_grad():
            decoding = images * (costs.backbone + costs.decoding(1, length)) / median_seconds(decode, device, min_s)
    return Speed(per_pass / step_s, decoding, step_s)


def median_seconds(work: Callable[[], object], device: torch.device, min_s: float) -> float:
    """Median seconds of a call, after a warm-up call.

    Of a probe of a moment, one call that the machine held up would be most of the mean.
    """
    work()
    calls: list[float] = []
    while (elapsed := sum(calls)) < min_s or (len(calls) < LEAST_CALLS and elapsed < PATIENCE * min_s):
        calls.append(seconds_of(work, device))
    return median(calls)
