"""Merge nocaps's validation images (Agrawal et al., ICCV 2019) into a training data set's annotations."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from harness.data.formats.ids import is_image_id, named
from harness.data.formats.karpathy_json import id_key
from harness.data.formats.references import References, read_references
from harness.data.karpathy import read_entries
from harness.utils.errors import BenchError
from harness.utils.files import RefusedPath, plain_path
from harness.utils.json_io import read_json
from results.published.scores import domain_footnote

SPLIT = "nocaps"
NAMES = ("in-domain", "near-domain", "out-domain")
_FORM = 'give {"IMAGE": "in-domain", ...}, IMAGE being an id, a file name or an Open Images id, for every image'


def join_nocaps(
    annotations: Path, nocaps: Path, *, folder: str, domains: Path | None = None
) -> tuple[dict[str, Any], References, int]:
    """The images of an annotation file, then nocaps's in a split of their own, each with its domain.

    Both sets of ids start near 0: nocaps's ids are offset beyond the others, which stay the same. Gives the content in
    Karpathy's format, nocaps's references, and the offset.

    `folder`, of nocaps's images, is below the image folder of a run; `domains` is a file of labels that replace the
    captions' own (`read_domains`). BenchError where a file has another format, `annotations` holds nocaps already, or
    `folder` leads elsewhere.
    """
    try:
        image_folder = plain_path(folder)
    except RefusedPath as refusal:
        raise BenchError(f"--folder: {refusal}", "name a folder below that of --images, as in nocaps") from refusal
    content, entries, ids = read_entries(annotations)
    if any(entry.get("split") == SPLIT for entry in entries):
        raise BenchError(f"{annotations} has a split {SPLIT!r} already", "give the file without it")
    references = read_references(nocaps)
    if domains is not None:
        references = replace(references, domains=read_domains(domains, references))
    complete = references.domains.keys() & references.files.keys()
    if without := [str(image) for image in references.captions if image not in complete]:
        raise BenchError(
            f"{nocaps}: {named(without, 'without a domain or a file name')}",
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
            "filepath": image_folder,
            "split": SPLIT,
            "domain": references.domains[image],
            "sentences": [{"raw": caption} for caption in captions],
        }
        for image, captions in references.captions.items()
    ]
    return content | {"images": [*entries, *joined]}, references, raised


def read_domains(file: Path, references: References) -> dict[int, str]:
    """The domain of every image of the references, from a file of their own.

    Copies of the annotations do not name the server's domains: its validation ones have 648, 2,938 and 914 images,
    those that copies state 417, 2,670 and 1,413. Scores by domain of one assignment compare with none of the other.

    The file is JSON of an object from images to domains, or in COCO's form, {"images": [{"id", "domain"}]}. Images are
    named by id, by file name, or by file name without its ending, which is their id in Open Images. BenchError where it
    has another form, or leaves images out.
    """
    domains = _domains_by_name(file, read_json(file))
    domain_of: dict[int, str] = {}
    for image in references.captions:
        name = references.files.get(image, "")
        if candidates := [domains[key] for key in (str(image), name, PurePosixPath(name).stem) if key in domains]:
            domain_of[image] = candidates[0]
    if without := [str(image) for image in references.captions if image not in domain_of]:
        raise BenchError(f"--domains {file}: {named(without, 'without a domain')}", _FORM)
    return domain_of


def describe_domains(counts: Mapping[str, int]) -> str:
    """The number of images of each domain, and the source of this assignment of nocaps."""
    description = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
    if set(counts) != set(NAMES):
        return description
    other = domain_footnote(counts)
    return f"{description}; as the nocaps server has them" if other is None else f"{description}. {other}"


def _domains_by_name(file: Path, content: Any) -> dict[str, str]:
    if isinstance(content, dict) and isinstance(content.get("images"), list):
        entries = [entry for entry in content["images"] if isinstance(entry, dict) and "domain" in entry]
        content = {str(entry.get("id")): entry["domain"] for entry in entries}
    if not isinstance(content, dict) or not all(isinstance(domain, str) for domain in content.values()):
        raise BenchError(f"--domains {file} is no object of images and their domains", _FORM)
    if strange := sorted({domain for domain in content.values() if domain not in NAMES}):
        raise BenchError(
            f"--domains {file} has a domain {strange[0][:40]!a}", f"domains of nocaps are: {', '.join(NAMES)}"
        )
    return content
