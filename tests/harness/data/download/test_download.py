"""Whole data sets: small stand-ins of COCO, Flickr8k and nocaps, and everything that may be wrong with them."""

from __future__ import annotations

import io
import shlex
import shutil
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.data.annotations.karpathy import read_karpathy
from harness.data.download.download import STAGING, download
from harness.data.download.sources import Annotations, PictureArchive, Source
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from tests.faults.test_full_disk import no_file_beyond
from tests.harness.conftest import bench_or_raise
from tests.harness.data.download.conftest import JPEG, Site, as_bytes, karpathy, sha256, zipped

NAMES = {
    "train": ["train2014/1.jpg", "train2014/2.jpg"],
    "restval": ["val2014/3.jpg"],
    "val": ["val2014/4.jpg"],
    "test": ["val2014/5.jpg"],
}
SPLITS = {split: len(names) for split, names in NAMES.items()}
TRAIN = {"train2014/": b""} | dict.fromkeys(NAMES["train"], JPEG)
VAL = {f"val2014/{number}.jpg": JPEG for number in (3, 4, 5)}


@pytest.fixture
def coco(site: Site) -> Source:
    """Five pictures in two archives, on the site."""
    site.files |= {
        "captions.zip": zipped({"dataset_coco.json": as_bytes(karpathy(NAMES)), "dataset_flickr8k.json": b"{}"}),
        "train2014.zip": zipped(TRAIN),
        "val2014.zip": zipped(VAL),
    }
    archives = tuple(
        PictureArchive(
            url=f"{site.url}/{name}.zip",
            bytes=len(site.files[f"{name}.zip"]),
            sha256=sha256(site.files[f"{name}.zip"]),
            pictures=count,
        )
        for name, count in (("train2014", 2), ("val2014", 3))
    )
    captions = Annotations(url=f"{site.url}/captions.zip", member="dataset_coco.json", splits=SPLITS)
    return Source(annotations=captions, archives=archives)


def fetched(source: Source, folder: Path, *what: str, name: str = "coco") -> Path:
    """The data set's annotation file, downloaded without waiting."""
    found = download(name, source, folder, what or ("annotations", "images"), Reporter(), pause=lambda _: None)
    return found.annotations


def refused(source: Source, folder: Path, *what: str, name: str = "coco") -> BenchError:
    """The error of a download."""
    with pytest.raises(BenchError) as caught:
        fetched(source, folder, *what, name=name)
    return caught.value


def test_coco_is_ready_for_a_run(site: Site, coco: Source, tmp_path: Path) -> None:
    folder = tmp_path / "coco"
    data = read_karpathy(fetched(coco, folder))
    assert not data.faults
    assert [sample.file for sample in data.samples] == [name for names in NAMES.values() for name in names]
    assert all((data.root / sample.file).read_bytes() == JPEG for sample in data.samples)
    assert sorted(path.name for path in folder.iterdir()) == ["dataset_coco.json", "images"]
    asked = len(site.asked)
    fetched(coco, folder)
    assert len(site.asked) == asked


def test_what_broke_off_is_continued(site: Site, coco: Source, tmp_path: Path) -> None:
    site.cuts = [10_000, 100, 20]
    fetched(coco, tmp_path)
    assert ("train2014.zip", "bytes=100-") in site.asked
    assert ("train2014.zip", "bytes=120-") in site.asked


def test_only_what_is_asked_for_is_fetched(site: Site, coco: Source, tmp_path: Path) -> None:
    fetched(coco, tmp_path, "annotations")
    assert site.asked == [("captions.zip", None)]
    assert [path.name for path in tmp_path.iterdir()] == ["dataset_coco.json"]


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"dataset_coco.json": as_bytes(karpathy({"train": ["a/1.jpg"], "val": ["a/2.jpg"]}))}, "train 1, val 1, not"),
        ({"readme.txt": b"moved"}, "holds 0 files dataset_coco.json"),
        ({"a/dataset_coco.json": b"{}", "b/dataset_coco.json": b"{}"}, "holds 2 files dataset_coco.json"),
        ({"dataset_coco.json": b"<html>"}, "dataset_coco.json"),
    ],
)
def test_annotations_of_another_structure_never_appear(
    site: Site, coco: Source, tmp_path: Path, members: dict[str, bytes], says: str
) -> None:
    site.files["captions.zip"] = zipped(members)
    error = refused(coco, tmp_path)
    assert says in str(error)
    assert "--mirror URL" in str(error.hint)
    assert [path.name for path in tmp_path.iterdir()] == [STAGING]
    site.files["captions.zip"] = zipped({"dataset_coco.json": as_bytes(karpathy(NAMES))})
    fetched(coco, tmp_path)


def test_what_is_no_archive_is_fetched_again(site: Site, coco: Source, tmp_path: Path) -> None:
    good, site.files["captions.zip"] = site.files["captions.zip"], b"<html>Log in first</html>"
    assert "captions.zip is not the archive that is meant: File is not a zip file" in str(refused(coco, tmp_path))
    site.files["captions.zip"] = good
    fetched(coco, tmp_path)


@pytest.mark.parametrize(
    ("members", "says"),
    [
        (VAL | {"../4.jpg": JPEG}, "leads out of the data set's folder"),
        (VAL | {"/4.jpg": JPEG}, "leads out of the data set's folder"),
        (VAL | {"C:\\4.jpg": JPEG}, "leads out of the data set's folder"),
        (VAL | {"val2014/run.sh": b""}, "which is no picture in val2014/"),
        (VAL | {"other/4.jpg": JPEG}, "which is no picture in val2014/"),
        (VAL | {"val2014/6.jpg": JPEG}, "holds 4 pictures, not 3"),
    ],
)
def test_an_archive_with_anything_else_is_not_unpacked(
    site: Site, coco: Source, tmp_path: Path, members: dict[str, bytes], says: str
) -> None:
    site.files["val2014.zip"] = content = zipped(members)
    archive = coco.archives[1].model_copy(update={"bytes": len(content), "sha256": sha256(content)})
    folder = tmp_path / "inside"
    error = refused(coco.model_copy(update={"archives": (archive,)}), folder)
    assert says in str(error)
    assert not (folder / "images").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]


def test_a_link_in_an_archive_is_refused(site: Site, coco: Source, tmp_path: Path) -> None:
    link = zipfile.ZipInfo("dataset_coco.json")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr(link, "/etc/passwd")
    site.files["captions.zip"] = written.getvalue()
    assert "'dataset_coco.json' is a link" in str(refused(coco, tmp_path, "annotations"))


def test_pictures_of_other_names_are_found_out(site: Site, coco: Source, tmp_path: Path) -> None:
    site.files["val2014.zip"] = content = zipped({name.replace("5", "6"): JPEG for name in VAL})
    archive = coco.archives[1].model_copy(update={"bytes": len(content), "sha256": sha256(content)})
    error = refused(coco.model_copy(update={"archives": (coco.archives[0], archive)}), tmp_path)
    assert "1 pictures that dataset_coco.json names are not in" in str(error)
    assert "val2014/5.jpg" in str(error)


def test_a_folder_of_pictures_that_is_not_whole_is_left_alone(coco: Source, tmp_path: Path) -> None:
    (tmp_path / "images" / "train2014").mkdir(parents=True)
    (tmp_path / "images" / "train2014" / "mine.jpg").write_bytes(JPEG)
    error = refused(coco, tmp_path)
    assert "train2014 holds 1 pictures, not 2" in str(error)
    assert "move it away" in str(error.hint)


def test_room_for_archives_and_pictures_is_asked_for_first(
    site: Site, coco: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = sum(archive.bytes or 0 for archive in coco.archives)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=needed))
    assert "what is missing of the pictures, packed and unpacked, needs" in str(refused(coco, tmp_path))
    assert site.asked == []


def test_a_disk_that_fills_up_while_unpacking_leaves_the_archive(site: Site, coco: Source, tmp_path: Path) -> None:
    big = zipped({f"val2014/{number}.jpg": JPEG + bytes(5000) for number in (3, 4, 5)})
    fetched(coco, tmp_path, "annotations")
    site.files["val2014.zip"] = big
    archive = coco.archives[1].model_copy(update={"bytes": len(big), "sha256": sha256(big)})
    source = coco.model_copy(update={"archives": (archive,)})
    (tmp_path / STAGING).mkdir()
    (tmp_path / STAGING / "val2014.zip").write_bytes(big)
    with no_file_beyond(1000):
        error = refused(source, tmp_path, "images")
    assert "3.jpg cannot be written: File too large" in str(error)
    assert list((tmp_path / "images").iterdir()) == []
    assert "captions.zip" in str(site.asked)
    assert len(site.asked) == 1


def test_flickr_pictures_need_a_form(coco: Source, tmp_path: Path) -> None:
    flickr = Source(annotations=coco.annotations, form="https://example.org/form")
    error = refused(flickr, tmp_path, "images", name="flickr8k")
    assert "fill in the form at https://example.org/form" in str(error)
    assert "--what annotations" in str(error.hint)


@pytest.fixture
def nocaps(site: Site) -> Source:
    """Two pictures with a caption each, on the site."""
    images = [
        {"id": number, "file_name": f"{number}.jpg", "domain": "in-domain", "coco_url": "http://elsewhere.invalid/"}
        for number in (1, 2)
    ]
    captions = [{"id": number, "image_id": number, "caption": "a dog"} for number in (1, 2)]
    site.files |= {
        "nocaps.json": as_bytes({"images": images, "annotations": captions}),
        "1.jpg": JPEG,
        "2.jpg": JPEG,
    }
    return Source(annotations=Annotations(url=f"{site.url}/nocaps.json", images=2), singly=f"{site.url}/validation/")


def test_nocaps_pictures_come_one_by_one_beside_coco(site: Site, nocaps: Source, tmp_path: Path) -> None:
    del site.files["2.jpg"]
    assert "/validation/2.jpg: the server answers 404" in str(refused(nocaps, tmp_path, name="nocaps"))
    site.files["2.jpg"] = JPEG
    assert fetched(nocaps, tmp_path, name="nocaps").name == "nocaps.json"
    assert sorted(path.name for path in (tmp_path / "images" / "nocaps").iterdir()) == ["1.jpg", "2.jpg"]
    assert [name for name, _ in site.asked].count("1.jpg") == 1


def test_a_page_in_place_of_a_picture_is_refused(site: Site, nocaps: Source, tmp_path: Path) -> None:
    site.files["1.jpg"] = b"<html>"
    assert "1.jpg is not a JPEG picture" in str(refused(nocaps, tmp_path, name="nocaps"))
    assert not (tmp_path / "images" / "nocaps" / "1.jpg").exists()


@pytest.mark.parametrize("name", ["../1.jpg", "a/1.jpg", "/etc/1.jpg", ".hidden"])
def test_nocaps_annotations_cannot_name_other_places(site: Site, nocaps: Source, tmp_path: Path, name: str) -> None:
    content = {"images": [{"id": 1, "file_name": name}], "annotations": [{"id": 1, "image_id": 1, "caption": "a dog"}]}
    site.files["nocaps.json"] = as_bytes(content)
    one = nocaps.model_copy(update={"annotations": nocaps.annotations.model_copy(update={"images": 1})})
    refused(one, tmp_path / "inside", name="nocaps")
    assert len(site.asked) == 1


@pytest.fixture
def of_site(site: Site, coco: Source, nocaps: Source, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """`bench data download` with the stand-ins, at addresses that are not the site's; gives what it printed."""
    away = {
        name: source.mirrored("http://unreachable.invalid") for name, source in (("coco", coco), ("nocaps", nocaps))
    }
    away["nocaps"] = away["nocaps"].model_copy(update={"folder": "coco"})
    monkeypatch.setattr("harness.data.download.sources.load_sources", lambda: away)

    def downloading(*words: object) -> str:
        code, output = bench_or_raise("data", "download", *words, "--mirror", site.url)
        assert code == 0
        return output

    return downloading


def test_the_printed_commands_can_be_typed(of_site: Callable[..., str], tmp_path: Path) -> None:
    folder = tmp_path / "my data"
    lines = of_site("coco", "--to", folder).splitlines()
    there = f"'{folder}/dataset_coco.json' --images '{folder}/images'"
    assert f"next: bench data verify {there}" in lines
    assert lines[-1].startswith(f"then: bench run --data {there} --backbone resnet50 --models ")
    lines = of_site("nocaps", "--to", folder).splitlines()
    joined = f"'{folder}/dataset_coco_nocaps.json'"
    following = next(line for line in lines if line.startswith("next: "))
    assert following.endswith(f"--out {joined}")
    assert bench_or_raise(*shlex.split(following.removeprefix("next: bench ")))[0] == 0
    assert len(read_karpathy(folder / "dataset_coco_nocaps.json", images=folder / "images").samples) == 7


def test_nocaps_alone_says_what_comes_first(
    of_site: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "first: bench data download coco --to coco" in of_site("nocaps", "--what", "annotations")
    with pytest.raises(BenchError, match="--what 'pixels' is no part of a data set"):
        bench_or_raise("data", "download", "coco", "--what", "annotations,pixels")
    with pytest.raises(BenchError, match="imagenet cannot be downloaded"):
        bench_or_raise("data", "download", "imagenet")
