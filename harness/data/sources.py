"""The public data sets that can be downloaded; `download.yaml` has their addresses and expected contents."""

from __future__ import annotations

import re
from importlib import resources

import yaml

from harness.config.schedule import Strict
from harness.utils.errors import BenchError
from harness.utils.files import shortened


class RemoteFile(Strict):
    """A file at an address; without a checksum, only its content is checked."""

    url: str
    bytes: int = 0
    sha256: str | None = None

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.url.rpartition("/")[2]


class Annotations(RemoteFile):
    """A file of captions, or an archive of a `member`, with images by split (by "images" in COCO's format)."""

    member: str | None = None
    splits: dict[str, int]

    @property
    def file(self) -> str:
        """The name of the file of captions."""
        return self.member or self.name


class PictureArchive(RemoteFile):
    """A zip archive whose pictures are in one folder with the archive's name."""

    sha256: str

    @property
    def folder(self) -> str:
        """The name of the folder, in the archive and in the image folder."""
        return self.name.removesuffix(".zip")


class Origin(Strict):
    """One data set, and where it is put unless the user says, if not in a `folder` called as it is.

    Its pictures come as `archives`, or `singly`, as the annotations name them, from the address of their folder. Of
    those that nobody may pass on, `form` is the page that gives them to who fills it in.
    """

    folder: str | None = None
    annotations: Annotations
    archives: tuple[PictureArchive, ...] = ()
    singly: str | None = None
    form: str | None = None

    def mirrored(self, mirror: str) -> Origin:
        """The same files below another address; BenchError where it is not an address."""
        if not re.fullmatch(r"https?://[!-~]+", mirror):
            raise BenchError(
                f"--mirror {shortened(repr(mirror)[1:-1])} is no http address",
                "name the folder that holds the files, for example --mirror https://example.org/coco",
            )
        base = mirror.rstrip("/")
        moved = {
            "annotations": self.annotations.model_copy(update={"url": f"{base}/{self.annotations.name}"}),
            "archives": tuple(
                archive.model_copy(update={"url": f"{base}/{archive.name}"}) for archive in self.archives
            ),
            "singly": self.singly and f"{base}/",
        }
        return self.model_copy(update=moved)


def load_sources() -> dict[str, Origin]:
    """Every data set that can be downloaded, by name."""
    text = resources.files("harness.data").joinpath("download.yaml").read_text(encoding="utf-8")
    return {name: Origin.model_validate(content) for name, content in yaml.safe_load(text).items()}


def find_source(name: str) -> Origin:
    """One of `load_sources()`; BenchError where there is none with this name."""
    sources = load_sources()
    if name not in sources:
        raise BenchError(f"{shortened(name)} cannot be downloaded", f"choose one of: {', '.join(sources)}")
    return sources[name]
