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
    """The visual input that a model requires.

    Attributes:
        kind: what the model sees of an image.
        dim: channels of the features; 0 for pixels and without visual input. Of "regions+grid", those of the regions.
        grid_dim: channels of the grid of "regions+grid"; 0 for any other kind.
        graph: the scene graph read with regions. "words" has relations and attributes, whose words are numbers in the
            vocabulary; "labels" has relations only, at most one per ordered pair of regions, with labels from 1 on.
    """

    kind: VisualKind
    dim: int
    grid_dim: int = 0
    graph: GraphKind = "none"


@dataclass(frozen=True, slots=True)
class Visual:
    """The visual input of a batch of images; only the parts that the model's `VisualSpec` requires are set.

    Models without visual input still get `features`, which have the batch size.

    Attributes:
        features: (B, L, C), padded at the end.
        mask: (B, L) bool, true at valid features; None where none is padded.
        boxes: (B, L, 4), x1, y1, x2, y2 in [0, 1] of the image.
        pixels: (B, 3, H, W), normalised floating-point values, or 8-bit indices into `levels`.
        grid: (B, h, w, C'), a feature map in addition to regions.
        relations: (B, M, 3) int64: region of the subject, region of the object, word or label; -1 where padded.
        attributes: (B, P, 1 + a) int64: a region and the words of its attributes; -1 where padded.
        levels: (B, 3, 256), the normalised value of each 8-bit pixel value.
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
        """The tensors that are set, by name."""
        tensors = {part.name: getattr(self, part.name) for part in fields(self)}
        return {name: tensor for name, tensor in tensors.items() if tensor is not None}

    def valid_features(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Features (B, L, C), set to zero at padding so that a NaN there cannot spread, and their mask (B, L)."""
        if self.features is None:
            raise ZooError("this model needs visual features, but the input has none")
        features = self.features.to(dtype)
        mask = self.mask
        if mask is None:
            return features, torch.ones(features.shape[:2], dtype=torch.bool, device=features.device)
        if not _known_all_valid(mask):
            features = features.masked_fill(~mask[..., None], 0.0)
        return features, mask

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Self:
        """Move to a device, then convert there, since half precision and 8-bit pixels are faster to move.

        Floating-point tensors get `dtype`, by default at least single precision. 8-bit pixels become floating-point.
        """
        moved = {}
        for name, stored in self.parts().items():
            tensor = stored.to(device, non_blocking=True)
            if tensor.is_floating_point():
                tensor = tensor.to(dtype or torch.promote_types(tensor.dtype, torch.float32))
            moved[name] = tensor
        levels = moved.pop("levels", None)
        if levels is not None:
            pixels = moved["pixels"]
            moved["pixels"] = levels.gather(2, pixels.flatten(2).long()).view(pixels.shape)
        return replace(self, **moved, levels=None)


def _known_all_valid(mask: Tensor) -> bool:
    """Whether nothing is padded. False on a GPU, where reading the mask would wait for the device."""
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

    Attributes:
        images: constant tensors with one row per image (B, ...), for example cross-attention keys and values.
        rows: tensors that differ between beams, one row per beam (B * W, ...).
        shared: tensors of any shape that all images share, for example weights concatenated for stepping.
        repeated: like `images`, but with one row per beam. Repeating once what is added to every row saves a kernel
            at every step.
    """

    images: dict[str, Tensor]
    rows: dict[str, Tensor]
    shared: dict[str, Tensor] = field(default_factory=dict)
    repeated: dict[str, Tensor] = field(default_factory=dict)

    def expand(self, width: int) -> DecodingState:
        """Repeat every row `width` times; the tensors of `images` are shared, not copied."""
        width = int(width)  # a tensor while a model is traced
        return replace(
            self,
            rows={name: tensor.repeat_interleave(width, 0) for name, tensor in self.rows.items()},
            repeated={name: tensor.repeat_interleave(width, 0) for name, tensor in self.repeated.items()},
        )

    def reorder(self, index: Tensor) -> DecodingState:
        """Take rows by `index` (B * W,), which must stay within the rows of each image."""
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
        """Feed one token per row (B * W,); return logits (B * W, V) of the next token, and the next state."""

    def forward(self, visual: Visual, tokens: Tensor) -> Tensor:
        """`decode` after `encode`."""
        return self.decode(self.encode(visual), tokens)

    def cross_attention_modules(self) -> Sequence[nn.Module]:
        """The modules that compute the softmax of cross-attention in `decode`, for `zoo.attention_maps`.

        Each is called once per layer or position. Empty if words do not attend to the image.
        """
        return ()

    def region_attention_modules(self) -> Sequence[nn.Module]:
        """The modules that compute the softmax of self-attention in `encode`, for `zoo.attention_maps`.

        Each is called once. Empty if the encoder has no attention among visual tokens.
        """
        return ()

    def set_dropout(self, p: float) -> None:
        """Set every dropout rate of the model to `p`, as a training stage may."""
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = p


class HasBackbone(Captioner):
    """A captioner on pixels with its own `backbone`, whose grid features are the input of the captioner `body`.

    While the backbone is frozen, `encode` accepts its cached features instead of pixels.
    """

    # A class to inherit from, not a protocol: from Python 3.12 on, a protocol does not see a module's submodules.
    backbone: nn.Module
    body: Captioner

    @abstractmethod
    def freeze_backbone(self, frozen: bool = True) -> None:
        """Freeze the backbone's weights, or train them."""
