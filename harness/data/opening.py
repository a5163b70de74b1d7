"""Open the data set that `--data` names."""

from __future__ import annotations

from pathlib import Path

from harness.data.dataset import Dataset
from harness.utils.errors import BenchError
from harness.utils.files import expanded

SCENES = "scenes"


def check_dataset(spec: str) -> None:
    """Refuse a `--data` that names nothing, before anything else is asked for; its content is not looked at.

    Raises:
        BenchError: it does not exist, or its folder holds no annotation file, or several.
    """
    from harness.data.karpathy import annotation_file

    if spec != SCENES:
        annotation_file(expanded(spec))


def open_dataset(spec: str, *, cache_dir: Path, images: Path | None = None) -> Dataset:
    """Open the embedded data set or a folder in Karpathy's format.

    Args:
        spec: "scenes" (generated under `cache_dir` on first use), a folder with dataset*.json[.gz] and images, or an
            annotation file itself.
        cache_dir: where generated data is kept.
        images: the image folder, if it is not beside the annotations.

    Raises:
        BenchError: it does not exist or cannot be read; single unusable images are in `Dataset.faults` instead.
    """
    from harness.data.karpathy import read_karpathy

    if spec == SCENES:
        if images is not None:
            raise BenchError("--images cannot be used with scenes: the embedded data set has its own images")
        from harness.data.scenes.dataset import prepare_scenes

        return read_karpathy(prepare_scenes(cache_dir), name=SCENES)
    return read_karpathy(expanded(spec), images=images)
