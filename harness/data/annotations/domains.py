"""Domains of nocaps's images from a file of their own: copies of the annotations do not name the server's.

The server's validation domains have 648, 2,938 and 914 images; those that copies of the annotations state have 417,
2,670 and 1,413. Scores by domain of one assignment compare with none of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from harness.data.formats import References
from harness.utils.errors import BenchError
from harness.utils.json_io import read_json
from results.published import domain_footnote

NAMES = ("in-domain", "near-domain", "out-domain")
_FORM = 'give {"IMAGE": "in-domain", ...}, IMAGE being an id, a file name or an Open Images id, for every image'


def read_domains(file: Path, references: References) -> dict[int, str]:
    """The domain of every image of the references.

    Args:
        file: JSON of an object from images to domains, or in COCO's form, {"images": [{"id", "domain"}]}. Images are
            named by id, by file name, or by file name without its ending, which is their id in Open Images.

    Raises:
        BenchError: it has another form, or leaves images out.
    """
    told = _told(file, read_json(file))
    found: dict[int, str] = {}
    for image in references.captions:
        name = references.files.get(image, "")
        keys = (str(image), name, PurePosixPath(name).stem)
        domain = next((told[key] for key in keys if key in told), None)
        if domain is not None:
            found[image] = domain
    without = [str(image) for image in references.captions if image not in found]
    if without:
        raise BenchError(f"--domains {file}: {len(without)} images have no domain ({', '.join(without[:8])})", _FORM)
    return found


def describe_domains(counts: Mapping[str, int]) -> str:
    """How many images each domain has, and whose assignment of nocaps that is."""
    told = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
    if set(counts) != set(NAMES):
        return told
    other = domain_footnote(counts)
    return f"{told}; as the nocaps server has them" if other is None else f"{told}. {other.text}"


def _told(file: Path, content: Any) -> dict[str, str]:
    if isinstance(content, dict) and isinstance(content.get("images"), list):
        entries = [entry for entry in content["images"] if isinstance(entry, dict) and "domain" in entry]
        content = {str(entry.get("id")): entry["domain"] for entry in entries}
    if not isinstance(content, dict) or not all(isinstance(domain, str) for domain in content.values()):
        raise BenchError(f"--domains {file} is no object of images and their domains", _FORM)
    strange = sorted({domain for domain in content.values() if domain not in NAMES})
    if strange:
        raise BenchError(
            f"--domains {file} has a domain {strange[0][:40]!a}", f"domains of nocaps are: {', '.join(NAMES)}"
        )
    return content
