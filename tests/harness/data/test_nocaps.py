"""nocaps's images beside others: a split of their own, with domains, under ids that no other image has."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.data.formats.references import References
from harness.data.nocaps import describe_domains, join_nocaps, read_domains
from harness.data.opening import open_dataset
from harness.utils.errors import BenchError
from tests.harness.conftest import bench_ok

TRAINED = [
    {"cocoid": 9, "filename": "a.jpg", "filepath": "val2014", "split": "train", "sentences": [{"raw": "A dog."}]},
    {"cocoid": 4, "filename": "b.jpg", "filepath": "val2014", "split": "test", "sentences": [{"raw": "A cat."}]},
]


def karpathy(folder: Path, images: list[dict[str, Any]] = TRAINED) -> Path:
    file = folder / "dataset_coco.json"
    file.write_text(json.dumps({"dataset": "coco", "images": images}))
    return file


def validation(folder: Path, **changes: object) -> Path:
    """Images 0 and 4 in nocaps's own form; what is None is left out."""
    images = [
        {"id": number, "file_name": f"{number}.jpg", "open_images_id": str(number), "domain": domain} | changes
        for number, domain in ((0, "in-domain"), (4, "out-domain"))
    ]
    told = [{key: value for key, value in image.items() if value is not None} for image in images]
    annotations = [{"id": i, "image_id": 4 * (i % 2), "caption": f"Caption {i}."} for i in range(4)]
    file = folder / "nocaps.json"
    file.write_text(json.dumps({"images": told, "annotations": annotations}))
    return file


def test_nocaps_is_a_split_of_its_own(tmp_path: Path) -> None:
    content, added, raised = join_nocaps(karpathy(tmp_path), validation(tmp_path), folder="open/nocaps")
    assert (len(added.captions), raised) == (2, 10)
    (tmp_path / "dataset.json").write_text(json.dumps(content))
    (tmp_path / "open" / "nocaps").mkdir(parents=True)
    (tmp_path / "open" / "nocaps" / "4.jpg").touch()
    dataset = open_dataset(str(tmp_path / "dataset.json"), cache_dir=tmp_path)
    assert dataset.name == "coco"
    assert [(sample.image_id, sample.split) for sample in dataset.samples] == [
        (9, "train"),
        (4, "test"),
        (10, "nocaps"),
        (14, "nocaps"),
    ]
    last = dataset.split("nocaps")[1]
    assert (last.file, last.domain, last.captions) == ("open/nocaps/4.jpg", "out-domain", ("Caption 1.", "Caption 3."))


def test_ids_go_on_under_the_name_that_the_others_have(tmp_path: Path) -> None:
    images = [{key: value for key, value in TRAINED[0].items() if key != "cocoid"} | {"imgid": 3}]
    content, *_ = join_nocaps(karpathy(tmp_path, images), validation(tmp_path), folder="nocaps")
    assert [image["imgid"] for image in content["images"]] == [3, 4, 8]


@pytest.mark.parametrize(
    ("changes", "folder", "says"),
    [
        ({"domain": None}, "nocaps", r"2 images .*\(0, 4\)"),
        ({"file_name": None}, "nocaps", "2 images without a domain or a file name"),
        ({}, "../nocaps", "--folder: '../nocaps' leads out"),
        ({}, "/data/nocaps", "--folder: '/data/nocaps' leads out"),
    ],
)
def test_what_cannot_be_joined_is_named(tmp_path: Path, changes: dict[str, object], folder: str, says: str) -> None:
    with pytest.raises(BenchError, match=says):
        join_nocaps(karpathy(tmp_path), validation(tmp_path, **changes), folder=folder)


def test_files_of_other_kinds_are_refused(tmp_path: Path) -> None:
    file, captions = karpathy(tmp_path), validation(tmp_path)
    with pytest.raises(BenchError, match="is in COCO's own format") as raised:
        join_nocaps(captions, captions, folder="nocaps")
    assert "bench data nocaps" in (raised.value.hint or "")
    with pytest.raises(BenchError, match="without a domain"):
        join_nocaps(file, file, folder="nocaps")
    twice = tmp_path / "twice.json"
    twice.write_text(json.dumps(join_nocaps(file, captions, folder="nocaps")[0]))
    with pytest.raises(BenchError, match="has a split 'nocaps' already"):
        join_nocaps(twice, captions, folder="nocaps")


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
        ({"0": "near-domain"}, r"1 image without a domain \(4\)"),
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
    captions, server, results = validation(tmp_path), tmp_path / "server.json", tmp_path / "results.json"
    server.write_text(json.dumps(LABELS))
    results.write_text(json.dumps(dict.fromkeys(LABELS, "a caption")))
    content, added, _ = join_nocaps(karpathy(tmp_path), captions, folder="nocaps", domains=server)
    assert list(added.domains.values()) == ["near-domain", "out-domain"]
    assert [image.get("domain") for image in content["images"]] == [None, None, "near-domain", "out-domain"]
    words = ("--references", captions, "--domains", server, "--no-meteor")
    output = bench_ok("evaluate", results, *words, "--out", tmp_path / "scores.json").stdout
    assert "CIDEr-D (df:domain)" in output
    assert "domains: near-domain 1, out-domain 1" in output
    scores = json.loads((tmp_path / "scores.json").read_text())["domains"]
    assert list(scores) == ["near-domain", "out-domain"]
    assert scores["near-domain"]["CIDEr-D (df:domain)"] is None, "of one image"
