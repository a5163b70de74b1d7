"""The interface of all captioning architectures.

Shapes use B images, n captions or W beams an image (rows are image-major: row = image * n + caption), L visual
tokens, C feature channels, D model channels, T caption positions and V vocabulary entries. Masks are true where valid.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Self

import torch
from torch import Tensor, nn

from zoo.errors import ZooError
from zoo.kinds import GraphKind, VisualKind


@dataclass(frozen=True, slots=True)
class VisualSpec:
    """The visual input of a model; `dim` is the number of channels (0 for pixels, and without visual input).

    Of two streams, `dim` is that of the regions and `grid_dim` that of the grid beside them; 0 for any other kind.
    `graph` is read beside regions: "words" are relations and attributes, as numbers of words; "labels" are relations
    alone, as labels of edges from 1 on, of which an ordered pair of regions has one.
    """

    kind: VisualKind
    dim: int
    grid_dim: int = 0
    graph: GraphKind = "none"


@dataclass(frozen=True, slots=True)
class Visual:
    """The visual input of a batch of images; only the parts that the model's `VisualSpec` requires are set.

    features: (B, L, C), padded at the end; mask: (B, L) bool; boxes: (B, L, 4) as x1, y1, x2, y2 in [0, 1] of the
    image; pixels: (B, 3, H, W), normalised, or 8-bit with `levels` (B, 3, 256), the value of each number; grid:
    (B, h, w, C'), the cells of a feature map beside regions. relations: (B, M, 3) int64, region of the subject, region
    of the object, and word or label; attributes: (B, P, 1 + a) int64, a region and its words; both -1 where padded.
    Models without visual input still get `features`, for B.
    """

    features: Tensor | None = None
    mask: Tensor | None = None
    boxes: Tensor | None = None
    pixels: Tensor | None = None
    grid: Tensor | None = None
    relations: Tensor | None = None
    attributes: Tensor | None = None
    levels: Tensor | None = None

    @property
    def batch_size(self) -> int:
        """Number of images."""
        for part in (self.features, self.pixels):
            if part is not None:
                return part.shape[0]
        raise ValueError("a Visual needs features or pixels")

    def parts(self) -> dict[str, Tensor]:
        """Those that are set, by name."""
        found = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: part for name, part in found.items() if part is not None}

    def valid_features(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Features (B, L, C) with zeros at padding, so that not even a NaN there can spread, and a mask (B, L)."""
        if self.features is None:
            raise ZooError("this model needs visual features, and got none")
        features, mask = self.features.to(dtype), self.mask
        if mask is None:
            return features, torch.ones(features.shape[:2], dtype=torch.bool, device=features.device)
        return features if _all_valid(mask) else features.masked_fill(~mask[..., None], 0.0), mask

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Self:
        """Move every part as it is stored, and widen there what models read wider: half precision, and 8-bit pixels.

        Floating-point parts get `dtype`, without one at least single precision.
        """
        moved = {}
        for name, value in self.parts().items():
            there = value.to(device, non_blocking=True)
            if there.is_floating_point():
                there = there.to(dtype or torch.promote_types(there.dtype, torch.float32))
            moved[name] = there
        levels = moved.pop("levels", None)
        if levels is not None:
            pixels = moved["pixels"]
            moved["pixels"] = levels.gather(2, pixels.flatten(2).long()).view(pixels.shape)
        return replace(self, **moved, levels=None)


def _all_valid(mask: Tensor) -> bool:
    """Whether nothing is padded; False where asking takes longer than copying, since a GPU has to be waited for."""
    return mask.device.type == "cpu" and bool(mask.all())


@dataclass(frozen=True, slots=True)
class Memory:
    """Output of the encoder for the decoder: features (B, L, D), mask (B, L) bool, further tensors by name."""

    features: Tensor
    mask: Tensor
    extra: dict[str, Tensor] = field(default_factory=dict)

    @property
    def batch_size(self) -> int:
        """Number of images."""
        return self.features.shape[0]


@dataclass(frozen=True, slots=True)
class DecodingState:
    """State of a decoder between steps.

    `images` holds tensors that are constant during decoding, one row per image (B, ...), shared by its beams: for
    example cross-attention keys and values. `rows` holds what differs between beams, one row per beam (B * W, ...).
    `shared` holds tensors of any shape that all images share, for example weights concatenated for stepping.
    `repeated` holds what all beams of an image have in common, like `images`, but with one row per beam: where it is
    only added to something of each row, repeating it once saves a kernel at every step.
    """

    images: dict[str, Tensor]
    rows: dict[str, Tensor]
    shared: dict[str, Tensor] = field(default_factory=dict)
    repeated: dict[str, Tensor] = field(default_factory=dict)

    def expand(self, width: int) -> DecodingState:
        """Repeat every row `width` times; the tensors of `images` are shared, not copied."""
        rows, repeated = (
            {name: value.repeat_interleave(int(width), 0) for name, value in part.items()}  # in a trace it is a tensor
            for part in (self.rows, self.repeated)
        )
        return replace(self, rows=rows, repeated=repeated)

    def reorder(self, index: Tensor) -> DecodingState:
        """Take rows by `index` (B * W,), which must stay within each image's own rows."""
        return replace(self, rows={name: value.index_select(0, index) for name, value in self.rows.items()})


class Captioner(nn.Module, ABC):
    """An image captioner: `encode` once per image, then `decode` whole captions or `step` word by word.

    Attributes:
        visual: the visual input of the model.
        vocab_size: V, the width of the logits.
        max_len: maximum number of tokens in `decode` and `step`, the begin token included.
        n_prefix_tokens: number of leading visual tokens without a location in the image (class tokens).
    """

    visual: VisualSpec
    vocab_size: int
    max_len: int
    n_prefix_tokens: int = 0

    @abstractmethod
    def encode(self, visual: Visual) -> Memory:
        """Encode the images, once for all their captions and beams."""

    @abstractmethod
    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        """Teacher forcing: tokens (B * n, T), begin token first, to logits (B * n, T, V) of the next tokens."""

    @abstractmethod
    def start(self, memory: Memory) -> DecodingState:
        """The state before the first token, one row per image."""

    @abstractmethod
    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        """Feed one token per row (B * W,); returns logits (B * W, V) of the next one. Never re-decodes the prefix."""

    def forward(self, visual: Visual, tokens: Tensor) -> Tensor:
        """`decode` after `encode`."""
        return self.decode(self.encode(visual), tokens)

    def cross_attention_modules(self) -> Sequence[nn.Module]:
        """The modules with the softmax of cross-attention in `decode`, each called once per layer or position.

        Empty if words do not attend to the image; see `zoo.attention_maps`.
        """
        return ()

    def region_attention_modules(self) -> Sequence[nn.Module]:
        """The modules with the softmax of attention among the visual tokens in `encode`, each called once.

        Empty if the encoder relates none of them to each other by attention; see `zoo.attention_maps`.
        """
        return ()

    def set_dropout(self, p: float) -> None:
        """Set every dropout rate of the model to `p`; it can differ between training stages."""
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = p


class HasBackbone(Captioner):
    """A captioner on pixels that owns its backbone: `body` is the captioner behind it, on the backbone's grid features.

    While the backbone is frozen, `encode` takes its cached features in place of pixels.
    """

    # A class to inherit from, not a protocol: from Python 3.12 on, a protocol does not see a module's submodules.
    backbone: nn.Module
    body: Captioner

    @abstractmethod
    def freeze_backbone(self, frozen: bool = True) -> None:
        """Freeze the backbone's weights, or train them."""
