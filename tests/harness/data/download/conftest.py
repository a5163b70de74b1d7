"""A server on the loopback address that sends files as servers do, or as they should not."""

from __future__ import annotations

import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

JPEG = b"\xff\xd8\xff\xe0 a picture\xff\xd9"


@dataclass
class Site:
    """Files by name, what was asked for, and how the server misbehaves.

    Attributes:
        cuts: bytes after which the next connections end, one each.
        ranges: whether it knows them.
        asked: the path and the Range of every request.
        login: what the Authorization of every request has to be.
    """

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    cuts: list[int] = field(default_factory=list)
    ranges: bool = True
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    login: str | None = None


@pytest.fixture
def site() -> Iterator[Site]:
    """A running server."""
    found = Site()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name, wanted = self.path.rpartition("/")[2], self.headers.get("Range")
            found.asked.append((name, wanted))
            content = found.files.get(name)
            if content is None or self.headers.get("Authorization") != found.login:
                self.send_error(404 if content is None else 401)
                return
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and found.ranges else 0
            if start and start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            most = found.cuts.pop(0) if found.cuts else len(content)
            self.wfile.write(content[start : start + most])

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
    """A zip archive, with a folder's entry as COCO's have one."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return written.getvalue()


def sha256(content: bytes) -> str:
    """The hex digest."""
    return hashlib.sha256(content).hexdigest()


def karpathy(names: Mapping[str, list[str]]) -> dict[str, Any]:
    """An annotation file in Karpathy's format with the pictures `folder/name` of each split."""
    listed = [(split, name) for split, pictures in names.items() for name in pictures]
    images = [
        {
            "cocoid": number,
            "filepath": name.partition("/")[0],
            "filename": name.partition("/")[2],
            "split": split,
            "sentences": [{"raw": f"Dog number {number}."}],
        }
        for number, (split, name) in enumerate(listed)
    ]
    return {"dataset": "coco", "images": images}


def as_bytes(content: object) -> bytes:
    """As JSON."""
    return json.dumps(content).encode()
