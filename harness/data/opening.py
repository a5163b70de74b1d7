"""From what the user typed after `--data` to a data set."""

from __future__ import annotations

from pathlib import Path

from harness.data.dataset import Dataset
from harness.utils.errors import BenchError

SCENES = "scenes"


def open_dataset(spec: str, *, cache_dir: Path, images: Path | None = None) -> Dataset:
    """Open the embedded data set or a folder in Karpathy's format.

    Args:
        spec: "scenes" (generated under `cache_dir` on first use), a folder with dataset*.json[.gz] and its pictures, or
            an annotation file itself.
        cache_dir: where generated data is kept.
        images: the pictures' folder, where it is not beside the annotations.

    Raises:
        BenchError: nothing is there, or it cannot be read; single unusable images are in `Dataset.faults` instead.
    """
    from harness.data.annotations.karpathy import read_karpathy

    if spec == SCENES:
        if images is not None:
            raise BenchError("the embedded data set draws its own pictures: --images does not go with scenes")
        from harness.data.scenes.dataset import prepare_scenes

        return read_karpathy(prepare_scenes(cache_dir), name=SCENES)
    return read_karpathy(Path(spec).expanduser(), images=images)
