"""The image processor of a pretrained model, run by the transformers library."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from harness.utils.errors import BenchError
from zoo.errors import first_line


@dataclass(frozen=True)
class HubPreprocessing:
    """Preprocessing of a pretrained model; `folder` holds its preprocessor_config.json."""

    folder: Path

    @cached_property
    def _processor(self) -> Any:
        from transformers import AutoImageProcessor

        try:
            return AutoImageProcessor.from_pretrained(  # type: ignore[no-untyped-call]
                str(self.folder), local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # the library may raise anything
            raise BenchError(
                f"{self.folder} holds no usable image processor: {first_line(error)}", "fetch the model again"
            ) from error

    def key(self) -> str:
        """A description of the processor and its settings."""
        return f"{type(self._processor).__name__} {self._processor.to_json_string()}"

    def __call__(self, image: Image.Image) -> np.ndarray:
        """Turn an RGB image of any size, from `load_image`, into float32 (3, height, width)."""
        pixels: np.ndarray = self._processor(images=image, return_tensors="np")["pixel_values"][0]
        return np.ascontiguousarray(pixels, dtype=np.float32)

    def seen(self, width: int, height: int) -> tuple[float, float, float, float]:
        """The part of an image of this size that is used: left, top, right, bottom."""
        settings = self._processor.to_dict()
        if not settings.get("do_center_crop"):
            return 0.0, 0.0, float(width), float(height)
        size, crop = settings["size"], settings["crop_size"]
        shortest = size.get("shortest_edge")
        resized = (shortest / min(width, height),) * 2 if shortest else (size["width"] / width, size["height"] / height)
        kept_width, kept_height = min(crop["width"] / resized[0], width), min(crop["height"] / resized[1], height)
        left, top = (width - kept_width) / 2, (height - kept_height) / 2
        return left, top, left + kept_width, top + kept_height
