"""Dummy visual inputs, for costs that depend only on shapes."""

from dataclasses import replace

import torch

from zoo.captioner import Captioner, HasBackbone, Visual, VisualSpec

_PIXELS = 3, 224, 224
_GRID = 7


def example_for(model: Captioner, *, length: int) -> Visual:
    """One image for a model, on the CPU; for a model with a backbone, pixels of the backbone's input size."""
    if isinstance(model, HasBackbone):
        return Visual(pixels=torch.zeros(1, *getattr(model.backbone, "default_cfg", {}).get("input_size", _PIXELS)))
    return example_visual(model.visual, length=length)


def example_visual(spec: VisualSpec, *, length: int) -> Visual:
    """One image with this `spec`: `length` grid cells or regions, all valid, with boxes side by side.

    A pooled input has one vector, a model without visual input gets one empty vector, and pixels are 224 x 224. The
    grid of "regions+grid" has 7 x 7 cells, as in papers. In a scene graph, each region except the first has a relation
    to the one before it, and one attribute.
    """
    if spec.kind == "pixels":
        return Visual(pixels=torch.zeros(1, *_PIXELS))
    tokens = length if spec.kind in {"grid", "regions", "regions+grid"} else 1
    generator = torch.Generator().manual_seed(0)
    edges = torch.linspace(0.0, 1.0, tokens + 1)
    boxes = torch.stack((edges[:-1], torch.zeros(tokens), edges[1:], torch.ones(tokens)), dim=1)
    visual = Visual(
        features=torch.randn(1, tokens, spec.dim, generator=generator),
        mask=torch.ones(1, tokens, dtype=torch.bool),
        boxes=boxes[None] if spec.kind.startswith("regions") else None,
    )
    if spec.graph != "none":
        subject = torch.arange(1, tokens)
        relations = torch.stack((subject, subject - 1, torch.ones_like(subject)), dim=1)[None]
        attributes = relations[..., ::2] if spec.graph == "words" else None
        visual = replace(visual, relations=relations, attributes=attributes)
    if not spec.grid_dim:
        return visual
    return replace(visual, grid=torch.randn(1, _GRID, _GRID, spec.grid_dim, generator=generator))


def batch_of(visual: Visual, images: int) -> Visual:
    """A batch of copies of one image."""
    copies = {name: part.repeat(images, *[1] * (part.dim() - 1)) for name, part in visual.parts().items()}
    return replace(visual, **copies)
