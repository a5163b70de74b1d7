"""Load images as pixels in threads, for feature extraction and for models on pixels."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.data.dataset import Dataset
from harness.data.hub import HubPreprocessing
from harness.data.images import BadImage, ImagePreprocessing, load_image
from harness.utils.errors import BenchError
from zoo.captioner import Visual, VisualSpec

READERS = 2
KEPT_BYTES = 256 * 2**20
"""Most memory of prepared images that a source keeps, so that a small data set is decoded once and not every epoch."""
Preprocessing = ImagePreprocessing | HubPreprocessing
Pixels = np.ndarray[Any, np.dtype[np.float32]]


def without_control(preprocessing: Preprocessing) -> Preprocessing:
    """The same preprocessing without the change that a control run makes."""
    return replace(preprocessing, control="none") if isinstance(preprocessing, ImagePreprocessing) else preprocessing


def read_pixels(path: Path, preprocessing: Preprocessing) -> Pixels | BadImage:
    """Pixels (3, H, W), or the error, so that one message can name all bad images of a batch."""
    try:
        return preprocessing(load_image(path))
    except BadImage as bad:
        return bad


def stack_pixels(results: Sequence[Pixels | BadImage]) -> Pixels:
    """Pixels (B, 3, H, W); raises BenchError that names every image that cannot be read."""
    bad = [result for result in results if isinstance(result, BadImage)]
    if bad:
        raise BenchError(
            "images cannot be read: " + "; ".join(f"{found.path} ({found.reason})" for found in bad),
            hint="`bench data verify` lists all of them; --skip-bad-images leaves them out and records which",
        )
    return np.stack([result for result in results if not isinstance(result, BadImage)])


class PixelSource:
    """The images of a data set, for models on pixels. Safe to share between threads.

    The first ones that are asked for stay in memory, as many as `KEPT_BYTES` hold.

    Args:
        preprocessing: applied to every image.
    """

    def __init__(self, dataset: Dataset, preprocessing: Preprocessing) -> None:
        self._paths = {sample.image_id: dataset.path(sample) for sample in dataset.samples}
        self._preprocessing = preprocessing
        self._kept: dict[int, Pixels] = {}
        self._kept_bytes = 0

    def visual(self, image_ids: Sequence[int], spec: VisualSpec) -> Visual:
        """Pixels of the images, in the order asked for.

        Raises:
            BenchError: an image cannot be read, or the model needs another kind of visual input.
        """
        if spec.kind != "pixels":
            raise BenchError(f"the model needs visual input of kind {spec.kind}, but these are images")
        read = [image_id for image_id in image_ids if image_id not in self._kept]
        paths = [self._paths[image_id] for image_id in read]
        with ThreadPoolExecutor(READERS, thread_name_prefix="image-reader") as readers:
            found = dict(zip(read, readers.map(read_pixels, paths, [self._preprocessing] * len(paths)), strict=True))
        pixels = stack_pixels(
            [found[image_id] if image_id in found else self._kept[image_id] for image_id in image_ids]
        )
        for image_id, image in found.items():
            self._keep(image_id, image)
        return Visual(pixels=torch.from_numpy(pixels))

    def _keep(self, image_id: int, image: Pixels | BadImage) -> None:
        if isinstance(image, BadImage) or self._kept_bytes + image.nbytes > KEPT_BYTES:
            return
        self._kept_bytes += image.nbytes
        self._kept[image_id] = image
