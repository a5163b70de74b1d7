"""The Hugging Face hub: weights given by options, image processors, and working offline without a minute of retries."""

import hashlib
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import numpy as np
from huggingface_hub import constants
from PIL import Image

from harness.data.images import centred
from harness.utils.errors import BenchError
from harness.utils.files import absolute, expanded, require_file
from harness.utils.hashing import sha256_of
from zoo.errors import first_line

PREFIX: Final = "hf:"
_REPOSITORY: Final = re.compile(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
_PARTS: Final = ("*.json", "*.txt", "*.model", "*.safetensors")
_CONNECT_TIMEOUT_S = 3.0
_PROXIES = ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


class WeightsMissing(BenchError):  # noqa: N818 - a state of things, for which a row is skipped or a metric is NULL
    """The weights are not on this machine; the hint says how to fetch them."""


@dataclass(frozen=True, slots=True)
class HubPlace:
    """The requested location of weights: a repository of the hub with an optional revision, or an absolute folder."""

    where: str
    revision: str | None = None

    @property
    def begin(self) -> str:
        """The text before the location on the command line."""
        return PREFIX

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder and not a repository."""
        return Path(self.where).is_absolute()

    @property
    def display_name(self) -> str:
        """The folder's name, or the repository with the requested revision."""
        if self.is_folder:
            return Path(self.where).name
        return self.where if self.revision is None else f"{self.where}@{self.revision}"

    def located(self) -> Path:
        """The folder, or the repository's folder in the hub's cache, without a fetch; WeightsMissing if absent."""
        if self.is_folder:
            if not Path(self.where).is_dir():
                raise WeightsMissing(f"the folder {self.where} is no longer there", "name where it was moved to")
            return Path(self.where)
        if (folder := cached_snapshot(self.where, self.revision)) is None:
            raise WeightsMissing(
                f"the weights of {self.begin}{self.display_name} are not on this machine",
                f"fetch them: bench prefetch model {PREFIX}{self.display_name}; or name a folder: {self.begin}FOLDER",
            )
        return folder


def parse_place(begin: str, text: str) -> tuple[str, str | None]:
    """`where` and `revision` of `FOLDER` or `ORG/NAME[@REVISION]`; an existing folder is preferred to a repository.

    `begin` stands before it on the command line. BenchError where it is neither.
    """
    folder = expanded(text)
    if text and folder.is_dir():
        return str(absolute(folder)), None
    if found := _REPOSITORY.fullmatch(text):
        return found[1], found[2]
    raise BenchError(
        f"{begin}{text}: there is no such folder, and it is no repository's name",
        f"write {begin}FOLDER, {begin}ORG/NAME or {begin}ORG/NAME@REVISION",
    )


@dataclass(frozen=True, slots=True)
class HubWeights(HubPlace):
    """Weights given by an option such as `--clip`."""

    option: str = ""

    @classmethod
    def parse(cls, option: str, text: str) -> Self:
        """See `parse_place`."""
        return cls(*parse_place(f"{option} ", text), option)

    @property
    def begin(self) -> str:
        """See `HubPlace.begin`."""
        return f"{self.option} "

    def folder(self) -> Path:
        """The folder of the files; WeightsMissing if absent, BenchError if no .safetensors file in it is readable."""
        snapshot = self.located()
        require_files(snapshot, f"of {self.begin}{self.display_name}")
        if not any((snapshot / name).is_file() for name in ("model.safetensors", "model.safetensors.index.json")):
            raise BenchError(
                f"{self.begin}{self.display_name} has no weights as model.safetensors, and others are not read",
                "name a revision that has them (refs/pr/N where the hub converted them), or save them so",
            )
        return snapshot

    def name(self) -> str:
        """The name for signatures: repository and commit, or a folder and its digest; WeightsMissing if absent."""
        folder = self.located()
        if not self.is_folder:
            return f"{self.where}@{folder.name[:12]}"
        digest = hashlib.sha256()
        for file in sorted({file for pattern in _PARTS for file in folder.glob(pattern)}):
            digest.update(f"{file.name} {sha256_of(file)}\n".encode())
        return f"{folder.name}#{digest.hexdigest()[:8]}"


def require_files(folder: Path, what: str) -> None:
    """BenchError where a folder has files that are not regular or readable: libraries would wait for a pipe."""
    for file in folder.glob("*.*"):
        if not file.is_dir():
            require_file(file, what)


def cached_snapshot(repository: str, revision: str | None) -> Path | None:
    """The folder of a repository in the hub's cache; None if it is not there. Nothing is fetched."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(repository, revision=revision, local_files_only=True))
    except Exception:  # of the library: not cached, an unreadable cache ...
        return None


def hub_is_reachable() -> bool:
    """Whether the hub's host accepts a connection within seconds; always true behind a proxy."""
    if any(os.environ.get(name) for name in _PROXIES):
        return True
    host = urlsplit(constants.ENDPOINT)
    try:
        socket.create_connection((host.hostname or "", host.port or 443), timeout=_CONNECT_TIMEOUT_S).close()
    except OSError:
        return False
    return True


@contextmanager
def quick_hub() -> Iterator[None]:
    """Offline mode of the hub's client within a block, if the hub cannot be reached."""
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not hub_is_reachable()
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def open_part(kind: Any, folder: Path, what: str, hint: str = "fetch the model again") -> Any:
    """A tokenizer or processor from a model's folder, without code of its own; BenchError begins with `what`."""
    try:
        return kind.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the library may raise anything
        raise BenchError(f"{what}: {first_line(error)}", hint) from error


@dataclass(frozen=True)
class HubPreprocessing:
    """Preprocessing of a pretrained model; `folder` holds its preprocessor_config.json."""

    folder: Path

    @cached_property
    def _processor(self) -> Any:
        from transformers import AutoImageProcessor

        return open_part(AutoImageProcessor, self.folder, f"{self.folder} holds no usable image processor")

    def key(self) -> str:
        """A description of the processor and its settings."""
        return f"{type(self._processor).__name__} {self._processor.to_json_string()}"

    def __call__(self, image: Image.Image) -> np.ndarray:
        """Turn an RGB image of any size, from `load_image`, into float32 (3, height, width)."""
        pixels: np.ndarray = self._processor(images=image, return_tensors="np")["pixel_values"][0]
        return np.ascontiguousarray(pixels, dtype=np.float32)

    def seen(self, width: int, height: int) -> tuple[float, float, float, float]:
        """The part of an image of this size that is used: left, top, right, bottom."""
        settings = self._processor.to_dict()
        if not settings.get("do_center_crop"):
            return 0.0, 0.0, float(width), float(height)
        size = settings["size"]
        crop = settings["crop_size"]
        shortest = size.get("shortest_edge")
        resized = (shortest / min(width, height),) * 2 if shortest else (size["width"] / width, size["height"] / height)
        kept_width = min(crop["width"] / resized[0], width)
        kept_height = min(crop["height"] / resized[1], height)
        return centred(kept_width, kept_height, width, height)
