"""How many multiply-accumulates a second a model makes here: seconds that turn counts into an estimate of time."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from harness.measure.evaluating import evaluating
from harness.planning import FORWARD_AND_BACKWARD, PassCosts, Speed
from zoo import Captioner, Visual
from zoo.decoding import greedy

LEAST_S = 1.0
IMAGES, CAPTIONS = 8, 5


def measure_speed(model: Captioner, visual: Visual, costs: PassCosts, length: int) -> Speed:
    """Time training passes and greedy decoding for about a second each, on copies of one image.

    Args:
        visual: of one image, on the model's device.
        length: tokens of a caption.
    """
    batch = Visual(
        **{
            name: value.expand(IMAGES, *value.shape[1:])
            for name in ("features", "mask", "boxes", "pixels")
            if (value := getattr(visual, name)) is not None
        }
    )
    device = next(model.parameters()).device
    tokens = torch.ones(IMAGES * CAPTIONS, length, dtype=torch.long, device=device)

    def train() -> None:
        model.zero_grad(set_to_none=True)
        model(batch, tokens).sum().backward()

    def decode() -> None:
        greedy(model, model.encode(batch), max_len=length, bos=1, eos=model.vocab_size - 1)

    model.train()
    seen = costs.encoder + costs.backbone
    per_pass = IMAGES * (seen + CAPTIONS * costs.caption) * FORWARD_AND_BACKWARD
    training = per_pass / _seconds(train, device)
    with evaluating(model), torch.no_grad():
        decoding = IMAGES * (costs.backbone + costs.decoding(1, length)) / _seconds(decode, device)
    model.zero_grad(set_to_none=True)
    return Speed(training, decoding)


def _seconds(work: Callable[[], None], device: torch.device) -> float:
    """Of one call, after one that warms up."""
    work()
    calls, started = 0, _now(device)
    while (elapsed := _now(device) - started) < LEAST_S:
        work()
        calls += 1
    return elapsed / calls


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
