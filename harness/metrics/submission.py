"""Submission files of evaluation servers: one caption for every image, ASCII only."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

from harness.data.formats.predictions import EMPTY, Predictions, mismatches
from harness.data.formats.references import read_image_ids, sanitise_caption
from harness.utils.atomic import replacing, write_text
from harness.utils.errors import BenchError
from results.runs.reading import run_keys
from results.store.rescoring import stored_captions
from results.store.store import Store

Server = Literal["coco", "nocaps"]
SPLITS: Final = {"coco": {"val2014": 40_504, "test2014": 40_775}, "nocaps": {"val": 4_500, "test": 10_600}}
_LISTS: Final = {
    "coco": "--images image_info_test2014.json, or captions_val2014.json with --split val2014, from cocodataset.org",
    "nocaps": "--images nocaps_test_image_info.json, or nocaps_val_image_info.json with --split val, from nocaps.org",
}
_CAPTION_THEM: Final = "caption them first: bench caption-data {images} --run {key} --images FOLDER --out results.json"


def read_image_list(images: Path, server: Server) -> list[int]:
    """The image ids of a server's list, in its order; BenchError, which names the server's list, for other files."""
    try:
        return read_image_ids(images)
    except BenchError as error:
        raise BenchError(f"--images: {error}", f"give the server's own list: {_LISTS[server]}") from error


def run_predictions(store: Store, key: str, images: Path) -> Predictions:
    """A run's captions, from its split with most of the listed images.

    BenchError if none has a caption, StoreError if there is no such run.
    """
    listed_ids = set(read_image_ids(images))
    if key not in (keys := run_keys(store, key)):
        raise BenchError(f"{key} is a model, but one run is exported", f"give the key of one: {', '.join(keys[:3])}")
    by_split = stored_captions(store, key)
    split = max(by_split, key=lambda name: len(listed_ids & by_split[name].keys()), default=None)
    if split is None or not listed_ids & by_split[split].keys():
        hint = _CAPTION_THEM.format(key=key, images=images)
        progress = f"it captioned {', '.join(by_split)}" if by_split else "it has not finished"
        raise BenchError(f"run {key} has no caption of any image in {images.name}: {progress}", hint)
    captions = by_split[split]
    empty = [str(image_id) for image_id, caption in captions.items() if not caption.strip()]
    captioned = {image_id: caption for image_id, caption in captions.items() if caption.strip()}
    return Predictions(captioned, {EMPTY: empty} if empty else {})


def write_submission(
    predictions: Predictions,
    images: Path,
    out: Path,
    *,
    server: Server,
    split: str,
    algorithm: str,
    check: Callable[[str], object],
) -> list[Path]:
    """Write the submission file of a server; return the written files.

    COCO's server expects the files of both splits in one archive, which is written once both exist.

    Args:
        images: the server's list of images (image_info_test2014.json, nocaps_test_image_info.json), or any annotation
            file of the split.
        out: the folder to write into.
        check: called with the name of each file before it is written.

    Raises:
        BenchError: the list is not that of the whole split, or a caption is missing, empty, duplicate, not a text, or
            of an image that is not in the list.
    """
    image_ids = read_image_ids(images)
    splits = SPLITS[server]
    if split not in splits:
        raise BenchError(f"the server of {server} has no split {split!r}", f"--split {' or '.join(splits)}")
    if len(image_ids) != splits[split]:
        other_splits = "".join(
            f"; for split {name}, add --split {name}" for name in splits if splits[name] == len(image_ids)
        )
        raise BenchError(
            f"--images {images} lists {len(image_ids):,} images, but split {split} of {server} has {splits[split]:,}",
            f"give the server's own list: {_LISTS[server]}{other_splits}",
        )
    if problems := mismatches(predictions, dict.fromkeys(image_ids), f"not in {images.name}"):
        raise BenchError("the server would refuse this: " + "; ".join(problems), "give one caption for every image")
    if not algorithm.replace("-", "").isalnum() or not algorithm.isascii():
        raise BenchError(f"--name {algorithm!r} cannot be part of a file name", "use letters, digits and hyphens")
    entries = [
        {"image_id": image_id, "caption": " ".join(sanitise_caption(predictions.captions[image_id]).split())}
        for image_id in image_ids
    ]
    name = f"captions_{split}_{algorithm}_results.json" if server == "coco" else f"nocaps_{split}_{algorithm}.json"
    check(name)
    write_text(out / name, json.dumps(entries, ensure_ascii=True) + "\n")
    return [out / name, *(_coco_archive(out, algorithm, check) if server == "coco" else ())]


def _coco_archive(out: Path, algorithm: str, check: Callable[[str], object]) -> list[Path]:
    files = [out / f"captions_{split}_{algorithm}_results.json" for split in SPLITS["coco"]]
    if not all(file.is_file() for file in files):
        return []
    archive = out / f"{algorithm}_results.zip"
    check(archive.name)
    with replacing(archive) as part, zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as opened:
        for file in files:
            opened.write(file, file.name)
    return [archive]
