"""The numbers of single images that a test is made of: one split and one metric of several runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from results.statistics.significance import Array

Images = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class ScoreMatrix:
    """One number of each image and run: `values` (images, runs), NaN where a run has none of an image.

    `images` are the ids of all images that any run has a number of, ascending; `runs` are the ids of the runs.
    """

    images: Images
    runs: tuple[int, ...]
    values: Array

    @classmethod
    def from_runs(cls, runs: Sequence[int], numbers: Mapping[int, tuple[Images, Array]]) -> Self:
        """Of ids of images and their numbers, by run; a run without any has a column of NaN."""
        images = np.unique(np.concatenate([ids for ids, _ in numbers.values()])) if numbers else np.empty(0, np.int64)
        columns = tuple(dict.fromkeys(runs))
        by_run = np.full((len(columns), len(images)), np.nan)  # the numbers of a run lie together
        for values, run in zip(by_run, columns, strict=True):
            if run in numbers:
                ids, scores = numbers[run]
                values[np.searchsorted(images, ids)] = scores
        return cls(images, columns, by_run.T)

    def column(self, run: int) -> Array:
        return self.values[:, self.runs.index(run)]

    def scored(self, run: int) -> Mask:
        """The images that a run has a number of."""
        return ~np.isnan(self.column(run))

    def has(self, run: int) -> bool:
        return bool(self.scored(run).any())

    def by_image(self, run: int) -> dict[int, float]:
        """The numbers of a run by image id."""
        scored = self.scored(run)
        return dict(zip(self.images[scored].tolist(), self.column(run)[scored].tolist(), strict=True))

    def of_ids(self, run: int, ids: Images) -> Array:
        """The numbers of a run of the images with these ids, NaN where it has none."""
        numbers = np.full(len(ids), np.nan)
        _, positions, columns = np.intersect1d(ids, self.images, assume_unique=True, return_indices=True)
        numbers[positions] = self.column(run)[columns]
        return numbers

    def common(self, runs: Sequence[int]) -> Mask:
        """The images that all of these runs have a number of; none without runs."""
        images = np.full(len(self.images), bool(runs))
        for run in runs:
            images &= self.scored(run)
        return images

    def have_same_images(self, runs: Sequence[int]) -> bool:
        """Whether each of these runs has a number of the same images."""
        return all(np.array_equal(self.scored(run), self.scored(runs[0])) for run in runs)

    def of_runs(self, runs: Sequence[int]) -> Array | None:
        """The numbers (runs, images) of runs that all have the same images; None where one has none, or others."""
        if not runs or not self.has(runs[0]) or not self.have_same_images(runs):
            return None
        return self.of_images(runs, self.scored(runs[0]))

    def of_images(self, runs: Sequence[int], images: Mask) -> Array:
        """The numbers (runs, images) of these images."""
        # One block of memory, so that sums over it are made in one order.
        return np.array([self.column(run)[images] for run in runs], dtype=np.float64)
