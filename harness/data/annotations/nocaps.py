"""Merge nocaps's validation images (Agrawal et al., ICCV 2019) into a training data set's annotations."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.data.annotations.domains import read_domains
from harness.data.annotations.image_paths import RefusedPath, plain_path
from harness.data.annotations.karpathy import read_entries
from harness.data.formats import id_key, is_image_id, read_references
from harness.utils.errors import BenchError

SPLIT = "nocaps"


@dataclass(frozen=True, slots=True)
class Joined:
    """Content in Karpathy's format, how many images nocaps added, also by domain, and the offset of their ids."""

    content: dict[str, Any]
    images: int
    raised: int
    domains: dict[str, int]


def join_nocaps(annotations: Path, nocaps: Path, *, folder: str, domains: Path | None = None) -> Joined:
    """The images of an annotation file, then nocaps's in a split of their own, each with its domain.

    Both sets of ids start near 0: nocaps's ids are offset beyond the others, which stay the same.

    Args:
        annotations: in Karpathy's format.
        nocaps: its captions in COCO's format, with a domain of each image.
        folder: of nocaps's images, below the image folder of a run.
        domains: a file of labels that replace the captions' own (`harness.data.annotations.domains`).

    Raises:
        BenchError: a file has another format, `annotations` holds nocaps already, or `folder` leads elsewhere.
    """
    try:
        place = plain_path(folder)
    except RefusedPath as refusal:
        raise BenchError(f"--folder: {refusal}", "name a folder below that of --images, as in nocaps") from refusal
    content, entries, ids = read_entries(annotations)
    if any(entry.get("split") == SPLIT for entry in entries):
        raise BenchError(f"{annotations} has a split {SPLIT!r} already", "give the file without it")
    references = read_references(nocaps)
    if domains is not None:
        references = replace(references, domains=read_domains(domains, references))
    told = references.domains.keys() & references.files.keys()
    without = [str(image) for image in references.captions if image not in told]
    if without:
        raise BenchError(
            f"{nocaps}: {len(without)} images have no domain or no file name ({', '.join(without[:8])})",
            "give nocaps's validation captions with domains (nocaps_val_4500_captions.json), or --domains FILE",
        )
    raised = max(ids) + 1 - min(references.captions)
    if not is_image_id(raised + max(references.captions)):
        raise BenchError(
            f"{annotations} and {nocaps}: their ids together need more than 64 bits", "number the images from 1 on"
        )
    key = id_key(entries)
    joined = [
        {
            key: image + raised,
            "filename": references.files[image],
            "filepath": place,
            "split": SPLIT,
            "domain": references.domains[image],
            "sentences": [{"raw": caption} for caption in captions],
        }
        for image, captions in references.captions.items()
    ]
    return Joined(
        content | {"images": [*entries, *joined]}, len(joined), raised, dict(Counter(references.domains.values()))
    )
