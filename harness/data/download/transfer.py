"""Transfers that continue: a downloader for pooch, which itself begins anew after every break."""

from __future__ import annotations

import base64
import http.client
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote_to_bytes, urlsplit

from harness.data.download.sources import RemoteFile
from harness.utils.errors import BenchError
from harness.utils.files import reason
from harness.utils.progress import Reporter
from results.errors import install_extra

TIMEOUT_S: Final = 60.0
ATTEMPTS: Final = 4
"""Connections in a row that bring no byte, before the transfer is given up."""
PART: Final = ".part"
"""Suffix of what has come of a file that is not whole."""
_PIECE: Final = 1 << 20
_CONTINUES: Final = "the same command continues where it stopped"
_Told = Callable[[int], None]


class _Cut(Exception):  # noqa: N818 - an end that is met with another connection
    """The connection ended before the file did."""


class ResumingDownloader:
    """Downloads as pooch asks of a downloader, but keeps what has come in `part`, and continues there.

    Args:
        part: grows over several connections and commands, and is moved into place when it is whole.
        size: bytes of the whole file, where they are known.
        told: called with the bytes that are there.
        pause: called with the number of connections in a row that brought nothing.
    """

    def __init__(
        self,
        part: Path,
        *,
        size: int | None = None,
        told: _Told = lambda _: None,
        pause: Callable[[int], None] = lambda idle: time.sleep(min(2.0**idle, 30.0)),
    ) -> None:
        self._part, self._size, self._told, self._pause = part, size, told, pause

    def __call__(self, url: str, output_file: Any, pooch: Any, *, check_only: bool | None = False) -> None:  # noqa: ARG002
        """Fetch the whole of `url` to `output_file`.

        Raises:
            BenchError: the server cannot be reached, refuses, or stays silent; or the disk is full.
        """
        idle, met = 0, False
        while True:
            before = self._there()
            try:
                self._connect(url)
                break
            except (OSError, http.client.HTTPException, _Cut) as error:
                met = met or not _unreachable(error)
                idle = 0 if self._there() > before else idle + 1
                if not met:
                    raise BenchError(
                        f"{url} cannot be reached: {_said(error)}",
                        f"check the network, or name another place with --mirror URL; {_CONTINUES}",
                    ) from error
                if idle >= ATTEMPTS:
                    raise BenchError(
                        f"{url} broke off {ATTEMPTS} times at byte {self._there():,}: {_said(error)}",
                        f"{_CONTINUES}; --mirror URL names another place",
                    ) from error
                if idle:
                    self._pause(idle)
        self._part.replace(output_file)

    def _there(self) -> int:
        return self._part.stat().st_size if self._part.exists() else 0

    def _connect(self, url: str) -> None:
        """One connection, from the byte that is missing on."""
        there = self._there()
        if there and there == self._size:
            return
        request = _asked(url)
        if there:
            request.add_header("Range", f"bytes={there}-")
        try:
            answer = urllib.request.urlopen(request, timeout=TIMEOUT_S)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 416 and there:
                    if error.headers.get("Content-Range") == f"bytes */{there}":
                        return
                    self._part.unlink()  # longer than the file is now
                    raise _Cut("the file changed at its address") from error
                if error.code >= 500:
                    raise _Cut(f"{error.code} {error.reason}") from error
                raise BenchError(
                    f"{url}: the server answers {error.code} {error.reason}",
                    "name a place that has the file with --mirror URL",
                ) from error
        with answer:
            continued = answer.status == 206 and (answer.headers.get("Content-Range") or "").startswith(
                f"bytes {there}-"
            )
            start = there if continued else 0  # a server that knows no ranges sends the whole again
            length = answer.headers.get("Content-Length")
            total = start + int(length) if length and length.isdecimal() else 0
            self._check_size(url, total)
            self._check_space(total - start)
            self._receive(answer, start, total)

    def _receive(self, answer: Any, start: int, total: int) -> None:
        done = start
        try:
            file = self._part.open("ab" if start else "wb", buffering=0)  # closing has nothing left to write
        except OSError as error:
            raise self._unwritable(error) from error
        with file:
            self._told(done)
            while piece := answer.read(_PIECE):
                left = memoryview(piece)
                try:
                    while left:
                        left = left[file.write(left) :]
                except OSError as error:
                    raise self._unwritable(error) from error
                done += len(piece)
                self._told(done)
        if done < total:
            raise _Cut(f"the connection ended at byte {done:,} of {total:,}")

    def _check_size(self, url: str, total: int) -> None:
        if self._size is not None and total and total != self._size:
            self._part.unlink(missing_ok=True)
            raise BenchError(
                f"{url} is not the file that is meant: {total:,} bytes, not {self._size:,}",
                "name a place that has the file with --mirror URL",
            )

    def _check_space(self, missing: int) -> None:
        require_space(self._part.parent, missing, self._part.name.removesuffix(PART))

    def _unwritable(self, error: OSError) -> BenchError:
        return BenchError(
            f"{self._part} cannot be written: {reason(error)}",
            f"make room, or name another folder with --to FOLDER; {_CONTINUES}",
        )


def fetch(
    file: RemoteFile,
    folder: Path,
    reporter: Reporter,
    *,
    pause: Callable[[int], None] | None = None,
    quiet: bool = False,
) -> Path:
    """The file in `folder`, whole and with its checksum; it is downloaded as far as it is not there.

    Raises:
        BenchError: pooch is not installed, the transfer fails, or the file has another size or checksum, and is then
            deleted.
    """
    if find_spec("pooch") is None:
        raise BenchError("downloads need pooch, which is not installed", install_extra("download"))
    import pooch

    pooch.get_logger().setLevel("ERROR")  # it would write into the bar
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / (file.name + PART)
    how = {} if pause is None else {"pause": pause}
    known = None if file.sha256 is None else f"sha256:{file.sha256}"

    def retrieve(told: _Told) -> Path:
        downloader = ResumingDownloader(part, size=file.bytes, told=told, **how)
        try:
            return Path(pooch.retrieve(file.url, known, fname=file.name, path=folder, downloader=downloader))
        except ValueError as error:  # of pooch's comparison
            raise BenchError(
                f"{file.url} is not the file that is meant: its SHA-256 is not {file.sha256}",
                "it is deleted; type the same command again, or name another place with --mirror URL",
            ) from error

    if quiet:
        return retrieve(lambda _: None)
    with reporter.task(f"{file.name} (MB)", (file.bytes or 0) >> 20) as task:
        return retrieve(lambda done: task.reach(done >> 20))


def require_space(folder: Path, needed: int, what: str) -> None:
    """BenchError where the disk of `folder`, or of what there is of its path, has fewer bytes left."""
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(place).free
    if needed > free:
        raise BenchError(
            f"{what} needs {needed / 1e9:,.2f} GB more, but the disk of {folder} has {free / 1e9:,.2f} GB left",
            f"make room, or name another folder with --to FOLDER; {_CONTINUES}",
        )


def _asked(url: str) -> urllib.request.Request:
    """A request of an address, whose user and password urllib would take for a part of the host."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    if not at:
        return urllib.request.Request(url)
    request = urllib.request.Request(parts._replace(netloc=host).geturl())
    sent = base64.b64encode(unquote_to_bytes(user)).decode()
    request.add_unredirected_header("Authorization", f"Basic {sent}")  # not to a host that this one names
    return request


def _unreachable(error: Exception) -> bool:
    """Whether no connection was made at all."""
    return isinstance(error, urllib.error.URLError)


def _said(error: Exception) -> str:
    cause = getattr(error, "reason", None)
    return reason(cause) if isinstance(cause, OSError) else " ".join(str(cause or error).split())
