"""Counts of multiply-accumulates kept on disk: other seeds of a model, and later runs of it, need not count again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from harness.measure.environment import package_version
from harness.measure.flops.counting import FlopCounts, count_caption, count_flops
from harness.measure.flops.tracing import PartCount
from harness.utils.atomic import write_text
from harness.utils.errors import BenchError
from harness.utils.hashing import digest
from harness.utils.json_io import read_json
from zoo.captioner import Captioner, Visual

Counts = TypeVar("Counts", FlopCounts, PartCount)
_PACKAGES = ("torch", "fvcore", "timm", "transformers")
"""What counts, and what models are made of."""


class KeptCounts:
    """Counts in files of a folder, each named by a digest of all that it depends on.

    That is what the caller says that the model is made by, its modules and parameters, the shapes of the image, the
    length and the width, the device and the packages. What cannot be counted is not kept, and a file that cannot be
    read is counted and written anew.
    """

    def __init__(self, folder: Path, made_by: Mapping[str, Any]) -> None:
        self._folder, self._made_by = folder, dict(made_by)

    def flops(self, model: Captioner, visual: Visual, *, caption_length: int, beam_size: int) -> FlopCounts:
        """As `count_flops`."""

        def count() -> FlopCounts:
            return count_flops(model, visual, caption_length=caption_length, beam_size=beam_size)

        return _kept(FlopCounts, self._path(model, visual, "flops", caption_length, beam_size), count)

    def caption(self, model: Captioner, visual: Visual, length: int, beam_size: int) -> PartCount:
        """As `count_caption`."""
        path = self._path(model, visual, "caption", length, beam_size)
        return _kept(PartCount, path, lambda: count_caption(model, visual, length, beam_size))

    def _path(self, model: Captioner, visual: Visual, what: str, length: int, beam_size: int) -> Path:
        parameters = [
            [name, list(value.shape), str(value.dtype), str(value.device.type), value.requires_grad]
            for name, value in model.named_parameters()
        ]
        key = {
            "what": what,
            "length": length,
            "beam_size": beam_size,
            "image": {name: [list(part.shape), str(part.dtype)] for name, part in visual.parts().items()},
            "modules": repr(model),
            "parameters": parameters,
            "made_by": self._made_by,
            "packages": {name: package_version(name) for name in _PACKAGES},
        }
        return self._folder / f"{digest(key, 32)}.json"


def _kept(kind: type[Counts], path: Path, count: Callable[[], Counts]) -> Counts:
    adapter = TypeAdapter(kind)
    try:
        return adapter.validate_python(read_json(path))
    except (BenchError, ValidationError):
        counts = count()
    write_text(path, adapter.dump_json(counts).decode())
    return counts
