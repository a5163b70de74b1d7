"""Domains of nocaps's images from a file of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.data.formats import References
from harness.data.nocaps import describe_domains, join_nocaps, read_domains
from harness.utils.errors import BenchError
from tests.harness.conftest import bench_or_raise

REFERENCES = References("nocaps", {0: ("A dog.",), 4: ("A cat.",)}, {}, {0: "00ab.jpg", 4: "00cd.jpg"})
LABELS = {0: "near-domain", 4: "out-domain"}


@pytest.mark.parametrize(
    "content",
    [
        {"0": "near-domain", "4": "out-domain"},
        {"00ab.jpg": "near-domain", "00cd": "out-domain", "another": "in-domain"},
        {"images": [{"id": 4, "domain": "out-domain"}, {"id": 0, "domain": "near-domain"}, {"id": 7}]},
    ],
)
def test_images_are_named_by_id_by_file_or_as_in_open_images(tmp_path: Path, content: object) -> None:
    (tmp_path / "server.json").write_text(json.dumps(content))
    assert read_domains(tmp_path / "server.json", REFERENCES) == LABELS


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"0": "near-domain"}, r"1 images have no domain \(4\)"),
        ({"0": "near", "4": "out-domain"}, "has a domain 'near'"),
        ({"0": 1}, "is no object of images and their domains"),
        (["in-domain"], "is no object of images and their domains"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: object, says: str) -> None:
    (tmp_path / "server.json").write_text(json.dumps(content))
    with pytest.raises(BenchError, match=says):
        read_domains(tmp_path / "server.json", REFERENCES)


def test_whose_domains_they_are_is_told_by_their_counts() -> None:
    server = {"near-domain": 2938, "in-domain": 648, "out-domain": 914}
    assert describe_domains(server) == (
        "in-domain 648, near-domain 2,938, out-domain 914; as the nocaps server has them"
    )
    copies = describe_domains({"in-domain": 417, "near-domain": 2670, "out-domain": 1413})
    assert "printed scores by domain are of the nocaps server's 648 in-domain" in copies
    assert describe_domains({"indoor": 3, "outdoor": 2}) == "indoor 3, outdoor 2"


def test_labels_replace_those_of_the_annotations(tmp_path: Path) -> None:
    images = [{"id": i, "file_name": f"{i}.jpg", "domain": "in-domain"} for i in (0, 4)]
    captions = [{"id": i, "image_id": i, "caption": "a red ball"} for i in (0, 4)]
    trained = [{"cocoid": 9, "filename": "a.jpg", "split": "train", "sentences": [{"raw": "A dog."}]}]
    contents = {
        "nocaps": {"images": images, "annotations": captions},
        "dataset_coco": {"images": trained},
        "server": {str(image): domain for image, domain in LABELS.items()},
        "results": [{"image_id": i, "caption": "a red ball"} for i in (0, 4)],
    }
    for name, content in contents.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    files = {name: tmp_path / f"{name}.json" for name in contents}
    joined = join_nocaps(files["dataset_coco"], files["nocaps"], folder="nocaps", domains=files["server"])
    assert joined.domains == {"near-domain": 1, "out-domain": 1}
    assert [image.get("domain") for image in joined.content["images"]] == [None, "near-domain", "out-domain"]
    words = ("--references", files["nocaps"], "--domains", files["server"], "--no-meteor")
    code, output = bench_or_raise("evaluate", files["results"], *words, "--out", tmp_path / "scores.json")
    assert code == 0
    assert "CIDEr-D (df:domain)" in output
    assert "domains: near-domain 1, out-domain 1" in output
    scores = json.loads((tmp_path / "scores.json").read_text())["domains"]
    assert list(scores) == ["near-domain", "out-domain"]
    assert scores["near-domain"]["CIDEr-D (df:domain)"] == 0  # of one image, no word tells anything
