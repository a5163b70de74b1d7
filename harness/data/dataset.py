"""A data set as the harness sees it: images with captions, splits, domains and boxes, whatever their origin."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Sample:
    """One image and its reference captions.

    `file` is relative to the data set's root and never leaves it. `boxes` are x1, y1, x2, y2 in pixels of the stored
    image, or None where they are unknown (an empty tuple means: known to have none).
    """

    image_id: int
    file: str
    split: str
    captions: tuple[str, ...]
    domain: str | None = None
    boxes: tuple[Box, ...] | None = None


@dataclass(frozen=True)
class Dataset:
    """Images under `root`, in a fixed order; `fingerprint` changes with any annotation or picture (hex digest)."""

    name: str
    root: Path
    samples: tuple[Sample, ...]
    fingerprint: str

    @cached_property
    def splits(self) -> dict[str, tuple[Sample, ...]]:
        """Samples by split, in the data set's order."""
        found: dict[str, list[Sample]] = {}
        for sample in self.samples:
            found.setdefault(sample.split, []).append(sample)
        return {name: tuple(samples) for name, samples in found.items()}

    def path(self, sample: Sample) -> Path:
        """Where the sample's picture lies."""
        return self.root / sample.file
