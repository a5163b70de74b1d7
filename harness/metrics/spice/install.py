"""Install SPICE's jar, its libraries and CoreNLP's models in the user's cache, from a verified archive."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from harness.metrics.spice.process import CORENLP_JARS, SPICE_JAR, packaged_spice
from harness.utils.atomic import replacing, write_text
from harness.utils.errors import BenchError
from harness.utils.files import expanded
from harness.utils.hashing import canonical_json
from results.errors import without_passwords
from results.files import check_regular

ARCHIVE: Final = "stanford-corenlp-full-2015-12-09"
ARCHIVE_URL: Final = f"https://nlp.stanford.edu/software/{ARCHIVE}.zip"
ARCHIVE_SHA1: Final = "55c9d653eb30ace7d5a60eb3138e424f9442e539"
"""The archive's SHA-1, as pinned by HazyResearch's deepdive; Stanford publishes no checksum."""
_PIECE: Final = 1 << 20

Progress = Callable[[int, int], None]


def prefetch_spice(source: str, folder: Path, *, sha256: str | None = None, progress: Progress | None = None) -> str:
    """Install from a file or URL into `folder`; returns the archive's SHA-256, which is recorded in `folder` too.

    Args:
        sha256: expected digest of the archive; without it, its SHA-1 must be the known one.
        progress: called with (done, total) bytes; the total is 0 if unknown.

    Raises:
        BenchError: it cannot be read, has another checksum, or lacks the models; then nothing is installed.
    """
    with tempfile.TemporaryDirectory(prefix="bench-spice-") as temporary:
        local = "://" not in source
        archive = expanded(source) if local else _download(source, Path(temporary) / "archive.zip", progress)
        found = _check(archive, sha256)
        for jar in CORENLP_JARS:
            _extract(archive, f"{ARCHIVE}/{jar}", folder / "lib" / jar)
    for origin in (packaged_spice() / SPICE_JAR, *sorted((packaged_spice() / "lib").glob("*.jar"))):
        target = folder / origin.relative_to(packaged_spice())
        with replacing(target) as part:
            shutil.copyfile(origin, part)
    write_text(folder / "source.json", canonical_json({"source": without_passwords(source), "sha256": found}) + "\n")
    return found


def _download(url: str, target: Path, progress: Progress | None) -> Path:
    if not url.startswith(("https://", "http://", "file://")):
        raise BenchError(f"{url} is neither a file nor an http URL", "give --from FILE-OR-URL")
    try:
        if url.startswith("file://"):
            check_regular(Path(urllib.request.url2pathname(urlsplit(url).path)))
        with urllib.request.urlopen(url, timeout=60) as answer, target.open("wb") as file:
            total, done = int(answer.headers.get("Content-Length") or 0), 0
            while piece := answer.read(_PIECE):
                file.write(piece)
                done += len(piece)
                if progress:
                    progress(done, total)
    except (urllib.error.URLError, OSError) as error:
        raise BenchError(
            f"{url} cannot be fetched: {getattr(error, 'reason', error)}",
            "download it elsewhere, then: bench prefetch spice --from FILE",
        ) from error
    return target


def _check(archive: Path, sha256: str | None) -> str:
    strong, known = hashlib.sha256(), hashlib.sha1(usedforsecurity=False)
    try:
        check_regular(archive)
        with archive.open("rb") as file:
            while piece := file.read(_PIECE):
                strong.update(piece)
                known.update(piece)
    except OSError as error:
        raise BenchError(f"{archive} cannot be read: {error.strerror or error}") from error
    found = strong.hexdigest()
    if sha256 is not None and found != sha256.lower():
        raise BenchError(f"{archive.name} is not the requested archive: its SHA-256 is {found}")
    if sha256 is None and known.hexdigest() != ARCHIVE_SHA1:
        raise BenchError(
            f"{archive.name} is not the known {ARCHIVE}.zip: its SHA-1 is {known.hexdigest()}, not {ARCHIVE_SHA1}",
            f"if you trust it, add --sha256 {found}",
        )
    return found


def _extract(archive: Path, member: str, target: Path) -> None:
    try:
        with (
            zipfile.ZipFile(archive) as opened,
            opened.open(member) as inside,
            replacing(target) as part,
            part.open("wb") as file,
        ):
            shutil.copyfileobj(inside, file, _PIECE)
    except (KeyError, zipfile.BadZipFile, OSError) as error:
        raise BenchError(f"{archive.name} does not contain {member}: {error}") from error
