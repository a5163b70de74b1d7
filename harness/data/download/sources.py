"""What `sources.yaml` says of each data set: addresses, sizes, checksums, and counts of a whole one."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml
from pydantic import Field

from harness.config.schedule import Strict
from harness.utils.errors import BenchError
from harness.utils.files import shortened

_SOURCES = "sources.yaml"


class RemoteFile(Strict):
    """A file at an address; without a checksum it is checked by what it holds alone."""

    url: str
    bytes: int | None = Field(None, gt=0)
    sha256: str | None = Field(None, pattern="^[0-9a-f]{64}$")

    @property
    def name(self) -> str:
        """The last part of the address."""
        return self.url.rpartition("/")[2]


class Annotations(RemoteFile):
    """A file of captions, or an archive with one.

    Args:
        member: the file in the archive; without it, the address is the file's own.
        splits: images by split, where the file is in Karpathy's format.
        images: of a file in COCO's format, as nocaps's.
    """

    member: str | None = None
    splits: dict[str, int] | None = None
    images: int | None = None


class PictureArchive(RemoteFile):
    """A zip archive whose pictures lie in one folder, called as the archive is."""

    pictures: int

    @property
    def folder(self) -> str:
        """The folder in the archive, and below the image folder."""
        return self.name.removesuffix(".zip")


class Source(Strict):
    """One data set.

    Args:
        folder: where it is put unless the user says; by default called as the data set is.
        archives: pictures as archives.
        singly: pictures one by one, as the annotations name them: the address of their folder.
        form: of pictures that nobody may pass on: the page that gives them to who fills in its form.
    """

    folder: str | None = None
    annotations: Annotations
    archives: tuple[PictureArchive, ...] = ()
    singly: str | None = None
    form: str | None = None

    def mirrored(self, mirror: str) -> Source:
        """The same files at another address, a folder that holds all of them under their own names.

        Raises:
            BenchError: it is no address.
        """
        host = mirror.partition("://")[2].partition("/")[0]
        if not mirror.startswith(("http://", "https://")) or not host or not mirror.isascii() or " " in mirror:
            raise BenchError(
                f"--mirror {shortened(repr(mirror)[1:-1])} is no http address",
                "name the folder that holds the files, for example --mirror https://example.org/coco",
            )
        base = mirror.rstrip("/")
        content: dict[str, Any] = self.model_dump()
        for file in (content["annotations"], *content["archives"]):
            file["url"] = f"{base}/{file['url'].rpartition('/')[2]}"
        if self.singly is not None:
            content["singly"] = f"{base}/"
        return Source.model_validate(content)


def load_sources() -> dict[str, Source]:
    """Every data set that can be downloaded, by name."""
    text = resources.files("harness.data.download").joinpath(_SOURCES).read_text(encoding="utf-8")
    return {name: Source.model_validate(content) for name, content in yaml.safe_load(text).items()}


def find_source(name: str) -> Source:
    """One of `load_sources()`; BenchError where there is none of the name."""
    sources = load_sources()
    if name not in sources:
        raise BenchError(f"{shortened(name)} cannot be downloaded", f"choose one of: {', '.join(sources)}")
    return sources[name]
