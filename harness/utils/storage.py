"""Folders of a workspace kept in a remote storage, through fsspec: `file://`, `s3://`, `gs://` and what else it knows.

The storage holds files by the SHA-256 of their bytes (`objects/ab/abc...`) and, for each folder, a manifest of names
and digests (`manifests/runs/KEY.json`). Objects never change, and a manifest is written after all that it names, in one
put: so a reader sees a folder as it was at some time, or none. What equals an object that is there is not sent again.
"""

import hashlib
import json
import os
import re
import secrets
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from harness.utils.atomic import replacing
from harness.utils.errors import BenchError
from harness.utils.files import absolute, shortened
from results.errors import install_extra
from results.files import load_json

CHECKPOINTS = "checkpoint/"
_LAST = {"meta.json", "run.json", "state.pt"}
"""What marks a folder as complete: it comes last, so that a download that was cut off is none."""
_DIGEST = re.compile("[0-9a-f]{64}")
_NEEDED = {"s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs"}
_INSTALL = install_extra("storage")


@dataclass(frozen=True)
class Storage:
    """A remote storage by URL; picklable. BenchError from every method, where it cannot be reached, read or written."""

    url: str

    def check(self, *, writing: bool = True) -> None:
        """Write a mark, if anything is to be written, and read it; BenchError as `check_url`, or where it refuses."""
        self.check_url()
        with self._errors():
            if writing:
                self._put("mark", b"captionbench storage 1\n")
            self._files.cat_file(self._place("mark"))

    def check_url(self) -> None:
        """BenchError where the URL cannot be understood, or a package for it is missing; the storage is not asked."""
        scheme, separator, place = self.url.partition("://")
        if not separator or not place.strip("/"):
            raise BenchError(
                f"--storage {shortened(self.url)} is no URL of a folder",
                "for example --storage s3://bucket/captionbench",
            )
        if scheme == "memory":
            raise BenchError(
                f"--storage {shortened(self.url)} keeps nothing beyond this command",
                "for example --storage s3://bucket/captionbench, or leave it out",
            )
        if scheme in {"file", "local"} and not Path(place).is_absolute():
            raise BenchError(
                f"--storage {shortened(self.url)} is another folder wherever the command is typed",
                f"write it from the root on: --storage file://{shortened(str(absolute(Path(place))))}",
            )
        for package in ("fsspec", _NEEDED.get(scheme, "fsspec")):
            if find_spec(package) is None:
                raise BenchError(f"--storage {scheme}:// needs {package}, which is not installed", _INSTALL)

    def push(self, folder: Path, name: str, wanted: Callable[[Path], bool] = lambda _: True) -> None:
        """Upload a folder's files under a name, and last its manifest, which replaces an earlier one.

        Hidden files, which are unfinished ones, and locks stay behind. `wanted` chooses files, by relative path.
        """
        manifest: dict[str, dict[str, Any]] = {}
        before = self._manifest(name) or {}
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            hidden = any(part.startswith(".") for part in inside.parts)
            if hidden or not path.is_file() or path.name == "lock" or not wanted(inside):
                continue
            digest = sha256_of(path)
            manifest[inside.as_posix()] = {"sha256": digest, "bytes": path.stat().st_size}
            with self._errors():
                if not self._files.exists(place := self._object(digest, name, inside.as_posix())):
                    self._upload(path, place)
        kept = {entry["sha256"] for file, entry in manifest.items() if file.startswith(CHECKPOINTS)}
        with self._errors():
            self._put(f"manifests/{name}.json", json.dumps(manifest, indent=1).encode())
            for file, entry in before.items():
                if file.startswith(CHECKPOINTS) and entry["sha256"] not in kept:
                    self._files.rm_file(self._object(entry["sha256"], name, file))

    def fetch(self, folder: Path, name: str) -> bool:
        """Download files of this name that are not here, each whole; False if there are none, BenchError for damage."""
        manifest = self._manifest(name)
        if manifest is None:
            return False
        for inside in sorted(manifest, key=lambda inside: (PurePosixPath(inside).name in _LAST, inside)):
            path, digest = folder / _checked(inside), manifest[inside]["sha256"]
            if path.is_file() and path.stat().st_size == manifest[inside]["bytes"] and sha256_of(path) == digest:
                continue
            with replacing(path) as temporary:
                with self._errors():
                    self._files.get_file(self._object(digest, name, inside), str(temporary))
                if sha256_of(temporary) != digest:
                    raise self._damage(f"the object {digest}", name)
        return True

    def _manifest(self, name: str) -> dict[str, dict[str, Any]] | None:
        place = f"manifests/{name}.json"
        with self._errors():
            try:
                raw = self._files.cat_file(self._place(place))
            except FileNotFoundError:
                return None
        with suppress(ValueError):
            found = load_json(raw)
            if isinstance(found, dict) and all(map(_is_entry, found.values())):
                return found
        raise self._damage(place, name)

    def _damage(self, what: str, name: str) -> BenchError:
        return BenchError(
            f"--storage {shortened(self.url)}: {what} is damaged",
            f"delete it there; the same command then makes {name} anew",
        )

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        import fsspec

        files, root = fsspec.core.url_to_fs(self.url)
        return files, root.rstrip("/")

    @property
    def _files(self) -> Any:
        return self._opened[0]

    def _place(self, name: str) -> str:
        return f"{self._opened[1]}/{name}"

    def _object(self, digest: str, name: str, file: str) -> str:
        """Where a file of a folder lies: what becomes old is shared with no other folder, so that it can be deleted."""
        owner = f"checkpoints/{name}" if file.startswith(CHECKPOINTS) else "objects"
        return self._place(f"{owner}/{digest[:2]}/{digest}")

    def _put(self, name: str, content: bytes) -> None:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            self._upload(Path(file.name), self._place(name))

    def _upload(self, path: Path, place: str) -> None:
        """Write a file in one instant: object storages do so by themselves, folders by a move."""
        if "file" not in self._files.protocol:
            self._files.put_file(str(path), place)
            return
        self._files.makedirs(place.rpartition("/")[0], exist_ok=True)
        temporary = f"{place}.{secrets.token_hex(4)}"
        self._files.put_file(str(path), temporary)
        self._files.mv(temporary, place)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except BenchError:
            raise
        except Exception as error:  # each file system of fsspec has errors of its own
            said = next(iter(str(error).splitlines()), type(error).__name__)
            raise BenchError(
                f"--storage {shortened(self.url)}: {type(error).__name__}: {said}",
                "check the URL, the credentials in the environment, and the free space there",
            ) from error


def sha256_of(path: Path) -> str:
    """The hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_entry(found: object) -> bool:
    """Whether it tells a file as manifests do; the digest becomes a part of a path."""
    return (
        isinstance(found, dict)
        and isinstance(found.get("bytes"), int)
        and isinstance(digest := found.get("sha256"), str)
        and _DIGEST.fullmatch(digest) is not None
    )


def _checked(inside: str) -> Path:
    """A path of a manifest; BenchError where it leads out of its folder."""
    path = PurePosixPath(inside)
    if path.is_absolute() or ".." in path.parts or os.sep not in "/":
        raise BenchError(f"a manifest of the storage names {inside!r}, outside of its folder", "delete the manifest")
    return Path(*path.parts)
