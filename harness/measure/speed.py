"""Measure the multiply-accumulate rate of a model on this machine, for estimates of time."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch

from harness.measure.estimate import FORWARD_AND_BACKWARD, PassCosts, Speed
from harness.measure.inputs import batch_of
from harness.measure.model_modes import preserve_state
from zoo import Captioner, Visual
from zoo.decoding import greedy

MIN_SECONDS = 1.0
IMAGES, CAPTIONS = 8, 5
LEAST_CALLS, PATIENCE = 3, 10
"""Calls whose median says more than their mean, and how many times the wanted seconds they may take for it."""


def measure_speed(
    model: Captioner,
    visual: Visual,
    costs: PassCosts,
    length: int,
    *,
    images: int = IMAGES,
    captions: int = CAPTIONS,
    min_s: float = MIN_SECONDS,
) -> Speed:
    """Time training passes and greedy decoding on copies of one image.

    Args:
        model: left as it was found.
        visual: one image, on the model's device.
        length: tokens of a caption.
        images: images in a batch.
        captions: captions per image.
        min_s: minimum seconds to time each of the two.
    """
    batch = batch_of(visual, images)
    device = next(model.parameters()).device
    tokens = torch.ones(images * captions, length, dtype=torch.long, device=device)

    def train() -> None:
        model.zero_grad(set_to_none=True)
        model(batch, tokens).sum().backward()

    def decode() -> None:
        greedy(model, model.encode(batch), max_len=length, bos=1, eos=model.vocab_size - 1)

    seen = costs.encoder + costs.backbone
    per_pass = images * (seen + captions * costs.caption) * FORWARD_AND_BACKWARD
    with preserve_state(model):
        model.train()
        training = per_pass / _seconds(train, device, min_s)
        model.eval()
        with torch.no_grad():
            decoding = images * (costs.backbone + costs.decoding(1, length)) / _seconds(decode, device, min_s)
    return Speed(training, decoding)


def _seconds(work: Callable[[], None], device: torch.device, min_s: float) -> float:
    """Median seconds of a call, after a warm-up call.

    Of a probe of a moment, one call that the machine held up would be most of the mean.
    """
    work()
    calls: list[float] = []
    started = before = _now(device)
    while (elapsed := before - started) < min_s or (len(calls) < LEAST_CALLS and elapsed < PATIENCE * min_s):
        work()
        now = _now(device)
        calls.append(now - before)
        before = now
    return median(calls)


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
