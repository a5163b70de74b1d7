"""The interface of frozen image encoders; opens a built-in one or any timm model by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor

from harness.data.backbones.filterbank import FilterBank
from harness.data.backbones.scenesnet import ScenesNet
from harness.data.images import ImagePreprocessing
from harness.utils.errors import BenchError
from harness.utils.files import shortened


class Backbone(Protocol):
    """A frozen image encoder: pixels (B, 3, H, W), prepared by `preprocessing`, to (B, h * w, C) float32.

    It computes on the pixels' device, without gradients; cells are ordered row by row from the top left.

    Attributes:
        preprocessing: from images to pixels.
        name: as given on the command line.
        dim: channels C.
        grid: cells (h, w).
        digest: hex; changes with architecture, options or any weight.
    """

    preprocessing: ImagePreprocessing
    name: str
    dim: int
    grid: tuple[int, int]
    digest: str

    def describe(self) -> str:
        """Name, weights and input size, as a score's signature shows them."""
        ...

    def __call__(self, pixels: Tensor) -> Tensor:
        """Features of the pixels."""
        ...


@runtime_checkable
class TrainableBackbone(Backbone, Protocol):
    """A backbone whose network can be part of a model on pixels."""

    arguments: dict[str, Any]
    """Arguments of timm.create_model, besides the name."""

    def state_dict(self) -> dict[str, Tensor]:
        """The weights, by timm's names."""
        ...

    def rest(self) -> None:
        """Free its GPU memory until features are needed again."""
        ...


BUILT_IN = (FilterBank.name, ScenesNet.name)
"""Backbones that need no timm."""
Weights = Path | Literal["random"] | None
"""A file, an explicit request for random weights, or None for timm's pretrained weights."""


def open_backbone(
    name: str,
    *,
    weights: Weights = None,
    options: Mapping[str, str] | None = None,
    image_size: int | None = None,
    normalisation: str | None = None,
) -> Backbone:
    """Open `filterbank`, `scenesnet` or a timm model, frozen and in evaluation mode.

    Args:
        name: `filterbank`, `scenesnet`, or a timm model, with or without a pretrained tag.
        weights: checkpoint for a timm model, or "random"; without either, timm's own pretrained weights are fetched.
        options: settings of the filterbank (`grid`) or keyword arguments of the timm model (`pad_type=same`).
        image_size: side of the square input; None for the backbone's own.
        normalisation: "imagenet", "half" (x / 127.5 - 1) or "clip"; None for the backbone's own.

    Raises:
        BenchError: unknown name, option or normalisation; missing or mismatching weights.
        ZooError: unreadable weights.
    """
    if image_size is not None and image_size < 1:
        raise BenchError(f"--image-size must be at least 1, not {image_size}", hint="for example --image-size 224")
    chosen = dict(options or {})
    if name == FilterBank.name:
        return _open_filterbank(weights, chosen, image_size, normalisation)
    if name == ScenesNet.name:
        return _open_scenesnet(weights, chosen, image_size, normalisation)

    # timm takes seconds to import, and the default does not need it.
    import timm
    from timm.models import get_arch_pretrained_cfgs

    from harness.data.backbones.timm_backbone import TimmBackbone

    architecture, _, tag = name.partition(".")
    if not timm.is_model(name):
        known = [*BUILT_IN, *timm.list_models()]
        near = difflib.get_close_matches(architecture, known, n=3, cutoff=0.5)
        raise BenchError(
            f"unknown backbone {shortened(name)!r}",
            hint=f"did you mean {' or '.join(near)}?" if near else "use filterbank, scenesnet or a model of timm's",
        )
    if "." in name and name not in (known := sorted(get_arch_pretrained_cfgs(architecture))):
        near = difflib.get_close_matches(name, known, n=3) or known[:5]
        raise BenchError(
            f"backbone {architecture} has no pretrained weights tagged {shortened(tag)!r}",
            hint=f"did you mean {' or '.join(near)}? {architecture} alone has timm's default weights",
        )
    return TimmBackbone(name, weights=weights, options=chosen, image_size=image_size, normalisation=normalisation)


def _open_filterbank(
    weights: Weights, options: dict[str, str], image_size: int | None, normalisation: str | None
) -> FilterBank:
    _refuse_settings("the filterbank", weights, normalisation)
    grid = options.pop("grid", "8")
    if options:
        raise BenchError(f"the filterbank has no option {', '.join(sorted(options))}", hint="its only option is grid=8")
    if not grid.isdecimal():
        raise BenchError(f"the filterbank's grid must be a whole number, not {grid!r}", hint="for instance grid=8")
    cells = int(grid)
    return FilterBank(cells, image_size if image_size is not None else 12 * cells)


def _open_scenesnet(
    weights: Weights, options: dict[str, str], image_size: int | None, normalisation: str | None
) -> ScenesNet:
    _refuse_settings("scenesnet", weights, normalisation)
    if options:
        raise BenchError("scenesnet has no options", hint="leave out --backbone-option")
    return ScenesNet() if image_size is None else ScenesNet(image_size)


def _refuse_settings(backbone: str, weights: Weights, normalisation: str | None) -> None:
    """Refuse what a built-in backbone has fixed."""
    if weights is not None or normalisation is not None:
        given = "--backbone-weights" if weights is not None else "normalisation"
        raise BenchError(f"{backbone} takes no {given}: it is fixed", hint="leave it out")
