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
from harness.data.hub.preprocessing import HubPreprocessing
from harness.data.images import BadImage, ImagePreprocessing, load_image
from harness.utils.errors import BenchError
from zoo.captioner import Visual, VisualSpec

READERS = 2
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
    """The images of a data set, for models on pixels, without a cache. Safe to share between threads.

    Args:
        preprocessing: applied to every image.
    """

    def __init__(self, dataset: Dataset, preprocessing: Preprocessing) -> None:
        self._paths = {sample.image_id: dataset.path(sample) for sample in dataset.samples}
        self._preprocessing = preprocessing

    def visual(self, image_ids: Sequence[int], spec: VisualSpec) -> Visual:
        """Pixels of the images, in the order asked for.

        Raises:
            BenchError: an image cannot be read, or the model needs another kind of visual input.
        """
        if spec.kind != "pixels":
            raise BenchError(f"the model needs visual input of kind {spec.kind}, but these are images")
        paths = [self._paths[image_id] for image_id in image_ids]
        with ThreadPoolExecutor(READERS, thread_name_prefix="picture-reader") as readers:
            found = list(readers.map(read_pixels, paths, [self._preprocessing] * len(paths)))
        return Visual(pixels=torch.from_numpy(stack_pixels(found)))
