"""Whole data sets from a server on the loopback address, small stand-ins of COCO and nocaps, and what may be wrong."""

import hashlib
import io
import json
import shlex
import shutil
import socket
import stat
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.data.download import STAGING, download, fetch
from harness.data.karpathy import read_karpathy
from harness.data.sources import Annotations, Origin, PictureArchive
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from tests.faults.test_full_disk import no_file_beyond
from tests.harness.conftest import bench_ok, bench_or_raise

JPEG = b"\xff\xd8\xff\xe0 a picture\xff\xd9"
NAMES = {
    "train": ["train2014/1.jpg", "train2014/2.jpg"],
    "restval": ["val2014/3.jpg"],
    "val": ["val2014/4.jpg"],
    "test": ["val2014/5.jpg"],
}
SPLITS = {split: len(names) for split, names in NAMES.items()}
VAL = {f"val2014/{number}.jpg": JPEG for number in (3, 4, 5)}


@dataclass
class Site:
    """Files by name, the names that were asked for, whether answers end early, and what `Authorization` has to be."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    cuts: bool = False
    login: str | None = None


@pytest.fixture
def site() -> Iterator[Site]:
    found = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            found.asked.append(name)
            content = found.files.get(name)
            if content is None or self.headers.get("Authorization") != found.login:
                self.send_error(404 if content is None else 401)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[:10] if found.cuts else content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def zipped(members: Mapping[str, bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return written.getvalue()


def karpathy(names: Mapping[str, list[str]]) -> bytes:
    """An annotation file with the pictures `folder/name` of each split."""
    listed = [(split, *name.split("/")) for split, pictures in names.items() for name in pictures]
    images = [
        {"cocoid": number, "filepath": folder, "filename": name, "split": split, "sentences": [{"raw": "A dog."}]}
        for number, (split, folder, name) in enumerate(listed)
    ]
    return json.dumps({"dataset": "coco", "images": images}).encode()


def archive_of(site: Site, name: str, members: Mapping[str, bytes]) -> PictureArchive:
    """An archive on the site."""
    site.files[f"{name}.zip"] = content = zipped(members)
    return PictureArchive(url=f"{site.url}/{name}.zip", bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


@pytest.fixture
def coco(site: Site) -> Origin:
    """Five pictures in two archives, on the site."""
    site.files["captions.zip"] = zipped({"dataset_coco.json": karpathy(NAMES), "dataset_flickr8k.json": b"{}"})
    train = archive_of(site, "train2014", {"train2014/": b""} | dict.fromkeys(NAMES["train"], JPEG))
    captions = Annotations(url=f"{site.url}/captions.zip", member="dataset_coco.json", splits=SPLITS)
    return Origin(annotations=captions, archives=(train, archive_of(site, "val2014", VAL)))


@pytest.fixture
def nocaps(site: Site) -> Origin:
    """Two pictures with a caption each, on the site."""
    images = [{"id": number, "file_name": f"{number}.jpg", "domain": "in-domain"} for number in (1, 2)]
    captions = [{"id": number, "image_id": number, "caption": "a dog"} for number in (1, 2)]
    content = json.dumps({"images": images, "annotations": captions}).encode()
    site.files |= {"nocaps.json": content, "1.jpg": JPEG, "2.jpg": JPEG}
    return Origin(
        annotations=Annotations(url=f"{site.url}/nocaps.json", splits={"images": 2}), singly=f"{site.url}/validation/"
    )


def fetched(source: Origin, folder: Path, *what: str, name: str = "coco") -> Path:
    """The data set's annotation file."""
    download(name, source, folder, what or ("annotations", "images"), Reporter())
    return folder / source.annotations.file


def refused(source: Origin, folder: Path, *what: str, name: str = "coco") -> BenchError:
    """The error of a download."""
    with pytest.raises(BenchError) as caught:
        fetched(source, folder, *what, name=name)
    return caught.value


def test_coco_is_ready_for_a_run(site: Site, coco: Origin, tmp_path: Path) -> None:
    folder = tmp_path / "coco"
    fetched(coco, folder, "annotations")
    assert site.asked == ["captions.zip"]
    assert [path.name for path in folder.iterdir()] == ["dataset_coco.json"]
    data = read_karpathy(fetched(coco, folder))
    assert not data.faults
    assert [sample.file for sample in data.samples] == [name for names in NAMES.values() for name in names]
    assert all((data.root / sample.file).read_bytes() == JPEG for sample in data.samples)
    assert sorted(path.name for path in folder.iterdir()) == ["dataset_coco.json", "images"]
    fetched(coco, folder)
    assert site.asked == ["captions.zip", "train2014.zip", "val2014.zip"]


@pytest.mark.parametrize(
    "members",
    [
        {"dataset_coco.json": karpathy({"train": ["a/1.jpg"], "val": ["a/2.jpg"]})},
        {"readme.txt": b"moved"},
        {"dataset_coco.json": b"<html>"},
        None,
    ],
)
def test_annotations_of_another_structure_never_appear(
    site: Site, coco: Origin, tmp_path: Path, members: dict[str, bytes] | None
) -> None:
    good = site.files["captions.zip"]
    site.files["captions.zip"] = b"<html>Log in first</html>" if members is None else zipped(members)
    error = refused(coco, tmp_path)
    assert f"{site.url}/captions.zip" in str(error)
    assert "--mirror URL" in str(error.hint)
    assert [path.name for path in tmp_path.iterdir()] == [STAGING]
    site.files["captions.zip"] = good
    fetched(coco, tmp_path)


def test_a_link_in_an_archive_is_none_on_the_disk(site: Site, coco: Origin, tmp_path: Path) -> None:
    link = zipfile.ZipInfo("dataset_coco.json")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr(link, "/etc/passwd")
    site.files["captions.zip"] = written.getvalue()
    refused(coco, tmp_path, "annotations")
    assert not [path for path in tmp_path.rglob("*") if path.is_symlink()]


def test_room_is_asked_for_before_the_first_byte(
    site: Site, coco: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = sum(archive.bytes for archive in coco.archives)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=needed))
    assert "--to FOLDER" in str(refused(coco, tmp_path).hint)
    assert site.asked == []


def test_a_disk_that_fills_up_leaves_no_half_of_a_folder(site: Site, coco: Origin, tmp_path: Path) -> None:
    big = archive_of(site, "val2014", dict.fromkeys(VAL, JPEG + bytes(5000)))
    source = coco.model_copy(update={"archives": (coco.archives[0], big)})
    for packed in (False, True):  # while the archive comes; while a picture is unpacked
        if packed:
            (tmp_path / STAGING / "val2014.zip").write_bytes(site.files["val2014.zip"])
        with no_file_beyond(1000), pytest.raises(OSError, match="File too large"):
            fetched(source, tmp_path)
        assert not (tmp_path / "images" / "val2014").exists()
    fetched(source, tmp_path)


def test_flickr_pictures_need_a_form(coco: Origin, tmp_path: Path) -> None:
    flickr = Origin(annotations=coco.annotations, form="https://example.org/form")
    error = refused(flickr, tmp_path, "images", name="flickr8k")
    assert "https://example.org/form" in str(error)
    assert "--what annotations" in str(error.hint)


def test_nocaps_pictures_come_one_by_one_beside_coco(site: Site, nocaps: Origin, tmp_path: Path) -> None:
    site.files["2.jpg"] = b"<html>"
    assert "2.jpg is not a JPEG picture" in str(refused(nocaps, tmp_path, name="nocaps"))
    assert not (tmp_path / "images" / "nocaps" / "2.jpg").exists()
    del site.files["2.jpg"]
    assert "/validation/2.jpg: the server answers 404" in str(refused(nocaps, tmp_path, name="nocaps"))
    site.files["2.jpg"] = JPEG
    assert fetched(nocaps, tmp_path, name="nocaps").name == "nocaps.json"
    assert sorted(path.name for path in (tmp_path / "images" / "nocaps").iterdir()) == ["1.jpg", "2.jpg"]
    assert site.asked.count("1.jpg") == 1


@pytest.mark.parametrize("name", ["../1.jpg", "a/1.jpg", "/etc/1.jpg", ".hidden"])
def test_nocaps_annotations_cannot_name_other_places(site: Site, nocaps: Origin, tmp_path: Path, name: str) -> None:
    content = {"images": [{"id": 1, "file_name": name}], "annotations": [{"id": 1, "image_id": 1, "caption": "a dog"}]}
    site.files["nocaps.json"] = json.dumps(content).encode()
    one = nocaps.model_copy(update={"annotations": nocaps.annotations.model_copy(update={"splits": {"images": 1}})})
    refused(one, tmp_path / "inside", name="nocaps")
    assert len(site.asked) == 1


def test_a_file_that_is_not_whole_is_none(site: Site, tmp_path: Path) -> None:
    site.files["a.zip"], site.cuts = bytes(100), True
    with pytest.raises(BenchError, match="cannot be fetched"):
        fetch(f"{site.url}/a.zip", tmp_path / "a.zip")
    site.cuts = False
    with pytest.raises(BenchError, match=f"SHA-256 is not {'0' * 64}"):
        fetch(f"{site.url}/a.zip", tmp_path / "a.zip", sha256="0" * 64)
    assert list(tmp_path.iterdir()) == []
    assert fetch(f"{site.url}/a.zip", tmp_path / "a.zip").read_bytes() == bytes(100)


def test_user_and_password_of_an_address_are_sent_and_never_said(site: Site, tmp_path: Path) -> None:
    site.files["a.zip"], site.login = b"content", "Basic bWU6c2VAY3JldA=="  # of me:se@cret
    address = f"{site.url}/a.zip".replace("//", "//me:se%40cret@")
    assert fetch(address, tmp_path / "right").read_bytes() == b"content"
    with pytest.raises(BenchError, match="answers 401") as caught:
        fetch(address.replace("se%40cret", "secret"), tmp_path / "wrong")
    assert "//me:***@127.0.0.1" in str(caught.value)
    assert "secret" not in f"{caught.value} {caught.value.hint}"


def test_without_a_network_one_sentence_says_so(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and never listens
        address = f"http://me:secret@127.0.0.1:{unused.getsockname()[1]}/a.zip"
        with pytest.raises(BenchError, match="cannot be fetched") as caught:
            fetch(address, tmp_path / "a.zip")
    assert "check the network" in str(caught.value.hint)
    assert "secret" not in str(caught.value)


@pytest.fixture
def of_site(site: Site, coco: Origin, nocaps: Origin, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """`bench data download` with the stand-ins, at addresses that are not the site's; gives what it printed."""
    away: dict[str, Any] = {
        name: source.mirrored("http://unreachable.invalid") for name, source in (("coco", coco), ("nocaps", nocaps))
    }
    away["nocaps"] = away["nocaps"].model_copy(update={"folder": "coco"})
    monkeypatch.setattr("harness.data.sources.load_sources", lambda: away)

    def downloading(*words: object) -> str:
        return bench_ok("data", "download", *words, "--mirror", site.url).stdout

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


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("coco", "--what", "annotations,pixels"), "--what 'pixels'"),
        (("coco", "--mirror", "ftp://x"), "--mirror ftp://x"),
        (("imagenet",), "imagenet"),
    ],
)
def test_what_cannot_be_downloaded_is_named(words: tuple[str, ...], named: str) -> None:
    with pytest.raises(BenchError, match=named):
        bench_or_raise("data", "download", *words)
