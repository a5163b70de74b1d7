"""Multiply-accumulates of a visual backbone, which is not part of other counts when features are cached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import timm
import torch

from harness.measure.flops.tracing import PartCount, trace, unfused
from harness.utils.errors import BenchError
from zoo.captioner import Visual
from zoo.models.end_to_end import grid_tokens


@dataclass(frozen=True, slots=True)
class BackboneCount:
    """Cost of one image through a backbone to its last features, `tokens` x `channels`."""

    name: str
    image_size: int
    parameters: int
    tokens: int
    channels: int
    count: PartCount


def count_backbone(name: str, image_size: int | None = None) -> BackboneCount:
    """Count a timm model without its head; needs no weights.

    Args:
        image_size: side of the square image; None for the backbone's own.

    Raises:
        BenchError: timm has no such model, or it does not accept images of this size.
    """
    if not timm.is_model(name):
        raise BenchError(f"unknown backbone {name!r}", "choose one of timm.list_models()")
    defaults: Any = timm.get_pretrained_cfg(name)
    side = image_size or int(defaults.input_size[-1])
    options: dict[str, Any] = {"img_size": side} if defaults.fixed_input_size else {}
    with torch.device("meta"):  # random weights of 195 million parameters would take longer than the count
        model = timm.create_model(name, pretrained=False, num_classes=0, **options)
    model.to_empty(device="cpu").eval().requires_grad_(False)
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.zero_()
    pixels = torch.zeros(1, 3, side, side)
    try:
        with torch.no_grad(), unfused():
            tokens = grid_tokens(model, pixels)
            count = trace(model, lambda seen: grid_tokens(model, seen.pixels), Visual(pixels=pixels))
    except (AssertionError, RuntimeError) as error:
        raise BenchError(
            f"backbone {name} does not accept images of {side} x {side}: {error}", "leave out --image-size"
        ) from error
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return BackboneCount(name, side, parameters, tokens.shape[1], tokens.shape[2], count)
