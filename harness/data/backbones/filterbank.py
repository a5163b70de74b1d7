"""An image descriptor without weights: the default features of the embedded data set, with nothing to download.

Every cell of a square grid is described by what a small model needs to name shapes, colours and relations:

- the mean colour of its 2 x 2 quarters, the spread of its colours, and its contrast to the cells around it;
- histograms of oriented gradients of its 3 x 3 neighbourhood, at full and at half resolution (Dalal and Triggs,
  "Histograms of oriented gradients for human detection", CVPR 2005: unsigned orientations, soft binning, L2-Hys);
- a self-similarity map: colour similarity of the cell's centre to locations up to five thirds of a cell around it,
  which outlines an object whatever its colour (Shechtman and Irani, "Matching local self-similarities across
  images and videos", CVPR 2007, with colours in place of patches);
- the cell's position, so that a model without positional encoding can tell left from right.

Values are of about unit scale. There are no weights and no random numbers: the same image gives the same features.
"""

import hashlib
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from harness.data.images import ImagePreprocessing
from harness.utils.errors import BenchError
from harness.utils.processes import on_threads

VERSION = 1  # part of the digest: raise it with any change to the numbers
ORIENTATIONS = 9
SIMILARITY_REACH = 5  # in thirds of a cell, to each side
SIMILARITY_WIDTH = 0.35  # colour distance, on pixels in [-1, 1], at which similarity falls to exp(-1/2)
GRADIENT_FLOOR = 0.05  # keeps the normalisation from amplifying noise in flat regions
CLIP = 0.2  # L2-Hys


class FilterBank:
    """The descriptor as a backbone; call it on pixels (B, 3, S, S) in [-1, 1] to get (B, grid * grid, dim).

    There are `grid` cells a side; S is a multiple of 6 * grid, since a cell is cut into halves and thirds.
    """

    name = "filterbank"

    def __init__(self, grid: int = 8, image_size: int = 96) -> None:
        if grid < 1 or image_size < 1 or image_size % (6 * grid):
            fitting = 6 * max(grid, 1) * max(1, round(image_size / (6 * max(grid, 1))))
            raise BenchError(
                f"the filterbank cannot cut {image_size} pixels into {grid} cells: the image size must be a multiple "
                "of 6 x grid",
                hint=f"for instance --image-size {fitting} with grid={max(grid, 1)}",
            )
        self.grid = (grid, grid)
        self.preprocessing = ImagePreprocessing(
            size=image_size, resize="squash", interpolation="bilinear", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)
        )
        self._positions = _positions(grid)
        self.dim = self(torch.zeros(1, 3, image_size, image_size)).shape[2]
        self.digest = hashlib.sha256(f"filterbank version {VERSION} grid {grid}".encode()).hexdigest()

    def describe(self) -> str:
        """Name and settings, as a score's signature shows them."""
        return f"filterbank-v{VERSION}[grid={self.grid[0]}]@{self.preprocessing.size}"

    @torch.inference_mode()
    def __call__(self, pixels: Tensor) -> Tensor:
        """(B, 3, S, S) normalised pixels to (B, grid * grid, dim) float32, cells row by row."""
        side = self.grid[0]
        cell = pixels.shape[-1] // side
        with on_threads(1):
            parts = (
                _colours(pixels, cell),
                _gradients(pixels, cell, side),
                _gradients(F.avg_pool2d(pixels, 2), cell // 2, side),
                _self_similarity(pixels, cell // 3),
            )
            described = torch.cat(parts, dim=1).flatten(2).transpose(1, 2)
            positions = self._positions.to(described.device).expand(len(described), -1, -1)
            return torch.cat((described, positions), dim=2)


def _colours(pixels: Tensor, cell: int) -> Tensor:
    """Colours of the quarters (12), their spread (3) and the contrast to the neighbourhood (3): (B, 18, G, G)."""
    quarters = F.pixel_unshuffle(F.avg_pool2d(pixels, cell // 2), 2)
    mean = F.avg_pool2d(pixels, cell)
    variance = F.avg_pool2d(pixels.square(), cell) - mean.square()
    around = F.avg_pool2d(mean, 3, stride=1, padding=1, count_include_pad=False)
    # Colours are few among many shape channels and vary less: doubling them balances their weight.
    return 2 * torch.cat((quarters, variance.clamp_min(0).sqrt(), mean - around), dim=1)


def _gradients(pixels: Tensor, cell: int, side: int) -> Tensor:
    """Normalised orientation histograms of each cell's 3 x 3 neighbourhood: (B, 81, G, G)."""
    padded = F.pad(pixels, (1, 1, 1, 1), mode="replicate")
    across = padded[:, :, 1:-1, 2:] - padded[:, :, 1:-1, :-2]
    down = padded[:, :, 2:, 1:-1] - padded[:, :, :-2, 1:-1]
    across, down = _of_strongest_channel(across, down)
    magnitude = torch.hypot(across, down)
    position = torch.atan2(down, across).remainder(math.pi) * (ORIENTATIONS / math.pi)
    bins = torch.arange(ORIENTATIONS, device=pixels.device, dtype=pixels.dtype).view(1, -1, 1, 1)
    distance = (position - bins).abs()
    distance = torch.minimum(distance, ORIENTATIONS - distance)
    histograms = F.avg_pool2d((1 - distance).clamp_min(0) * magnitude, cell)
    blocks = F.unfold(histograms, 3, padding=1).view(len(pixels), -1, side, side)
    return _unit(_unit(blocks).clamp_max(CLIP)) * math.sqrt(blocks.shape[1])


def _of_strongest_channel(across: Tensor, down: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients (B, 1, H, W) of the channel that has the largest at each place, the first of equals.

    Comparisons give the same as `argmax` and `gather` over three channels, in a fraction of their time.
    """
    strength = across.square() + down.square()
    (strongest, *other_strengths), (x, *xs), (y, *ys) = (
        gradients.chunk(3, dim=1) for gradients in (strength, across, down)
    )
    for other_strength, other_x, other_y in zip(other_strengths, xs, ys, strict=True):
        stronger = other_strength > strongest
        strongest = torch.maximum(other_strength, strongest)
        x = torch.where(stronger, other_x, x)
        y = torch.where(stronger, other_y, y)
    return x, y


def _unit(blocks: Tensor) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(blocks, dim=1, keepdim=True)
    return blocks / (length + GRADIENT_FLOOR)


def _self_similarity(pixels: Tensor, third: int) -> Tensor:
    """Colour similarity of each cell's centre to the places around it, in [-1, 1]; outside the image: -1."""
    patches = F.avg_pool2d(pixels, third)
    centres = patches[:, :, 1::3, 1::3]
    batch, _, side, _ = centres.shape
    window = 2 * SIMILARITY_REACH + 1
    outside = 100.0  # a colour unlike any, so that its similarity is zero
    padded = F.pad(patches, (SIMILARITY_REACH - 1,) * 4, value=outside)
    around = F.unfold(padded, window, stride=3).view(batch, 3, window * window, side, side)
    distance = (around - centres.unsqueeze(2)).square().sum(dim=1)
    return 2 * torch.exp(-distance / (2 * SIMILARITY_WIDTH**2)) - 1


def _positions(side: int) -> Tensor:
    """Each cell's place (1, G * G, 10): x, y in [-1, 1], and sine and cosine of one and two half-waves of them."""
    line = (torch.arange(side, dtype=torch.float32) * 2 + 1) / side - 1
    y, x = torch.meshgrid(line, line, indexing="ij")
    position = torch.stack((x, y), dim=-1).view(1, side * side, 2)
    waves = [wave(position * math.pi * turns) for turns in (0.5, 1.0) for wave in (torch.sin, torch.cos)]
    return torch.cat((position, *waves), dim=-1)
