"""Dummy visual inputs, for costs that depend only on shapes."""

from dataclasses import replace

import torch

from zoo.captioner import Captioner, HasBackbone, Visual, VisualSpec

_PIXELS = 3, 224, 224
_GRID = 7


def example_for(model: Captioner, *, length: int) -> Visual:
    """One image for a model, on the CPU; pixels are as many as a backbone of its own takes."""
    if isinstance(model, HasBackbone):
        return Visual(pixels=torch.zeros(1, *getattr(model.backbone, "default_cfg", {}).get("input_size", _PIXELS)))
    return example_visual(model.visual, length=length)


def example_visual(spec: VisualSpec, *, length: int) -> Visual:
    """One image for a model with this `spec`: `length` grid cells or regions, all valid, boxes side by side.

    A pooled input has one vector, a model without visual input gets one empty vector, and pixels are 224 x 224. A grid
    beside regions has 7 x 7 cells, those of its papers. In a scene graph each region but the first is related to the
    one before it, and has one attribute.
    """
    if spec.kind == "pixels":
        return Visual(pixels=torch.zeros(1, *_PIXELS))
    tokens = length if spec.kind in {"grid", "regions", "regions+grid"} else 1
    generator = torch.Generator().manual_seed(0)
    edges = torch.linspace(0.0, 1.0, tokens + 1)
    boxes = torch.stack((edges[:-1], torch.zeros(tokens), edges[1:], torch.ones(tokens)), dim=1)
    seen = Visual(
        features=torch.randn(1, tokens, spec.dim, generator=generator),
        mask=torch.ones(1, tokens, dtype=torch.bool),
        boxes=boxes[None] if spec.kind.startswith("regions") else None,
    )
    if spec.graph != "none":
        second = torch.arange(1, tokens)
        pairs = torch.stack((second, second - 1, torch.ones_like(second)), dim=1)[None]
        seen = replace(seen, relations=pairs, **({"attributes": pairs[..., ::2]} if spec.graph == "words" else {}))
    if not spec.grid_dim:
        return seen
    return replace(seen, grid=torch.randn(1, _GRID, _GRID, spec.grid_dim, generator=generator))


def batch_of(visual: Visual, images: int) -> Visual:
    """A batch of copies of one image."""
    copies = {name: part.repeat(images, *[1] * (part.dim() - 1)) for name, part in visual.parts().items()}
    return replace(visual, **copies)
