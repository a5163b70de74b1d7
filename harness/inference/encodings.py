"""The space of encoder outputs: how far its vectors spread, and a picture of it in two dimensions.

The figure of the Image Transformer (arXiv:2004.14231) compares encoders by t-SNE and by the trace of the covariance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import torch
from numpy.typing import NDArray

from harness.data.batches import VisualSource, evaluation_batches
from harness.utils.errors import BenchError
from zoo import Captioner

ENCODED = 100
POINTS = 500
_AT_ONCE = 25
_SIDE, _TITLE, _MARGIN = 320, 40, 12

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Encodings:
    """Output vectors of an encoder, (N, D), and by vector the image that it is of, (N,)."""

    vectors: Floats
    images: NDArray[np.int64]

    @property
    def trace(self) -> float:
        """Trace of the covariance of all vectors: the sum of their channels' variances."""
        return float(self.vectors.var(0, ddof=1).sum())

    @property
    def trace_within(self) -> float:
        """The same of vectors less the mean of their image: how far the places of one image are told apart."""
        of_image = np.unique(self.images, return_inverse=True)[1]
        counts = np.bincount(of_image)
        means = np.stack([np.bincount(of_image, channel) for channel in self.vectors.T], 1) / counts[:, None]
        rest = self.vectors - means[of_image]
        return float((rest**2).sum() / max(len(rest) - len(counts), 1))

    def drawn(self) -> Encodings:
        """At most `POINTS` of the vectors, evenly spread, in two dimensions."""
        few = np.unique(np.linspace(0, len(self.vectors) - 1, POINTS).astype(int))
        return Encodings(tsne(self.vectors[few]), self.images[few])


@torch.inference_mode()
def encodings(model: Captioner, source: VisualSource, image_ids: Sequence[int], *, device: torch.device) -> Encodings:
    """What the encoder of a model in evaluation mode makes of images; padding is left out.

    Raises:
        BenchError: no two vectors come out, which have no covariance.
    """
    vectors, images = [], []
    for ids, visual in evaluation_batches(image_ids, source, model.visual, _AT_ONCE):
        memory = model.encode(visual.to(device))
        vectors.append(memory.features[memory.mask].double().cpu().numpy())
        images.append(np.repeat(ids, memory.mask.sum(1).cpu().numpy()))
    if sum(map(len, vectors)) < 2:
        raise BenchError("fewer than two vectors come out of the encoder", "give --data and --split with more pictures")
    return Encodings(np.concatenate(vectors), np.concatenate(images))


def tsne(vectors: Floats, perplexity: float = 30.0, steps: int = 500) -> Floats:
    """Exact t-SNE of (N, D) to (N, 2), from the first two principal components, so without chance.

    Van der Maaten and Hinton, 2008; exaggeration by 12 in the first quarter of the steps, rate N / 48, 50 at least.
    """
    from scipy.spatial.distance import cdist

    number = len(vectors)
    apart, own = cdist(vectors, vectors, "sqeuclidean"), np.eye(number, dtype=bool)
    apart[own] = np.inf
    apart -= apart.min(1, keepdims=True)
    wanted = math.log(max(1.0, min(perplexity, (number - 1) / 3)))
    low, high = np.zeros(number), np.full(number, np.inf)
    precision = np.full(number, 1 / max(float(apart[~own].mean()), 1e-12))
    for _ in range(64):  # by bisection, the precision at which a vector's neighbours have that entropy
        near = np.exp(-apart * precision[:, None])
        near /= near.sum(1, keepdims=True)
        flat = -(near * np.log(np.maximum(near, 1e-300))).sum(1) > wanted
        low, high = np.where(flat, precision, low), np.where(flat, high, precision)
        precision = np.where(np.isinf(high), 2 * precision, (low + high) / 2)
    near = (near + near.T) / (2 * number)
    left, size, _ = np.linalg.svd(vectors - vectors.mean(0), full_matrices=False)
    found = np.pad(left[:, :2] * size[:2], ((0, 0), (0, max(0, 2 - len(size)))))
    found *= 1e-4 / max(found[:, 0].std(), 1e-12)
    speed, rate = np.zeros_like(found), max(50.0, number / 48)
    for step in range(steps):
        early = step < steps // 4
        weight = np.where(own, 0.0, 1 / (1 + cdist(found, found, "sqeuclidean")))
        pull = ((12 if early else 1) * near - weight / max(weight.sum(), 1e-300)) * weight
        speed = (0.5 if early else 0.8) * speed - rate * 4 * (pull.sum(1)[:, None] * found - pull @ found)
        found = found + speed
    return found


def draw_encodings(spaces: Sequence[tuple[str, Encodings]]) -> str:
    """An SVG of one square a space in two dimensions, under its title; vectors of one image share a colour."""
    panels = []
    for place, (title, space) in enumerate(spaces):
        centred = space.vectors - (space.vectors.max(0) + space.vectors.min(0)) / 2
        shown = centred * (_SIDE / 2 - _MARGIN) / max(np.abs(centred).max(), 1e-12) + _SIDE / 2
        # The golden angle tells neighbours apart.
        hues = np.unique(space.images, return_inverse=True)[1] * 137.508 % 360
        dots = "".join(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="hsl({hue:.0f},60%,45%)"/>'
            for (x, y), hue in zip(shown, hues, strict=True)
        )
        panels.append(
            f'<g transform="translate({place * (_SIDE + _MARGIN)},{_TITLE})"><text y="-14">{escape(title)}</text>'
            f'<rect width="{_SIDE}" height="{_SIDE}" fill="none" stroke="#999"/>{dots}</g>\n'
        )
    width, height = len(spaces) * (_SIDE + _MARGIN), _SIDE + _TITLE + 1
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-1 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="13"><rect x="-1" width="{width}" height="{height}" fill="#fff"/>\n'
        f"{''.join(panels)}</svg>\n"
    )
