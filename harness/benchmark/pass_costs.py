"""Multiply-accumulates of a model's passes, for `harness.measure.estimate`; its own backbone is counted separately."""

from __future__ import annotations

import torch

from harness.measure.estimate import PassCosts
from harness.measure.flops.counting import count_encoder, count_flops
from harness.measure.inputs import example_visual
from harness.measure.model_modes import eval_mode
from zoo import Captioner, HasBackbone, Visual


def pass_costs(model: Captioner, *, cells: int, caption_length: int) -> tuple[PassCosts, Visual]:
    """The costs of one image, and an example image to probe speed with.

    Args:
        cells: grid cells or regions, for models that do not find them themselves.
    """
    backbone, visual = 0, example_visual(model.visual, length=cells)
    counted = model
    if isinstance(model, HasBackbone):
        sides = getattr(model.backbone, "default_cfg", {}).get("input_size", (3, 224, 224))
        visual = Visual(pixels=torch.zeros(1, *sides)).to(next(model.parameters()).device)
        with torch.inference_mode(), eval_mode(model):
            tokens = model.encode(visual).features.shape[1]
        whole = count_encoder(model, visual).macs
        counted = model.body
        inner = example_visual(counted.visual, length=tokens)
    else:
        inner = visual
    counts = count_flops(counted, inner, caption_length=caption_length, beam_size=1)
    if counted is not model:
        backbone = whole - counts.encoder.macs
    return PassCosts(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        encoder=counts.encoder.macs,
        start=counts.start.macs,
        step=counts.step.macs,
        caption=counts.teacher_forced.macs - counts.encoder.macs,
        backbone=backbone,
    ), visual
