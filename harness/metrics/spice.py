"""SPICE 1.0 in a child process, if its parser's models are installed; and their installation in the user's cache.

Anderson et al., "SPICE: Semantic Propositional Image Caption Evaluation", ECCV 2016. The jar is in pycocoevalcap; the
CoreNLP models that it parses with are not (`bench prefetch spice`). Results are matched by image id; pycocoevalcap's
own driver assigns them to other images if the ids are not in order.
"""

import hashlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

import numpy as np

from harness.data.download import fetch
from harness.metrics.java import JavaError, java_command, run_java
from harness.utils.atomic import replacing, write_text
from harness.utils.errors import BenchError
from harness.utils.files import expanded
from harness.utils.hashing import canonical_json, sha256_of
from harness.utils.progress import Reporter
from harness.utils.workspace import user_cache
from results.errors import without_passwords
from results.files import check_regular
from results.statistics.significance import Array

SPICE_HEAP_MB: Final = 8192
SPICE_JAR: Final = "spice-1.0.jar"
CORENLP_JARS: Final = ("stanford-corenlp-3.6.0.jar", "stanford-corenlp-3.6.0-models.jar")
ARCHIVE: Final = "stanford-corenlp-full-2015-12-09"
ARCHIVE_URL: Final = f"https://nlp.stanford.edu/software/{ARCHIVE}.zip"
_ARCHIVE_SHA1: Final = "55c9d653eb30ace7d5a60eb3138e424f9442e539"
"""As pinned by HazyResearch's deepdive; Stanford publishes no checksum."""
TIMEOUT_S: Final = 6 * 3600.0
# Its serialiser (fst 2.47) accesses private fields of these packages, which Java 17 and later forbid.
_OPENS: Final = tuple(
    f"--add-opens=java.base/java.{package}=ALL-UNNAMED"
    for package in ("lang", "util", "math", "net", "text", "util.concurrent")
)


def packaged_spice() -> Path:
    """pycocoevalcap's folder of the jar and its libraries."""
    return Path(str(resources.files("pycocoevalcap") / "spice"))


def user_spice() -> Path:
    """The folder in the user's cache that `bench prefetch spice` fills."""
    return user_cache() / "spice"


def find_spice() -> Path | None:
    """A folder with the jar and CoreNLP's models: the user's, else the package's; None if the models are missing."""
    for folder in (user_spice(), packaged_spice()):
        if all((folder / name).is_file() for name in (SPICE_JAR, *(f"lib/{jar}" for jar in CORENLP_JARS))):
            return folder
    return None


def run_spice(references: Mapping[int, Sequence[str]], candidates: Mapping[int, str], *, java: Path) -> Array:
    """SPICE of each tokenised caption, in the references' order: (N,) F-scores; JavaError where it cannot be run."""
    folder = find_spice()
    if folder is None:
        raise JavaError("not run: SPICE's models are not installed", "bench prefetch spice")
    with tempfile.TemporaryDirectory(prefix="bench-spice-") as temporary:
        questions_file, answers_file, cache = (Path(temporary) / name for name in ("in.json", "out.json", "cache"))
        cache.mkdir()
        questions = [
            {"image_id": image_id, "test": candidates[image_id], "refs": list(texts)}
            for image_id, texts in references.items()
        ]
        questions_file.write_text(json.dumps(questions), encoding="utf-8")
        options = (str(questions_file), "-cache", str(cache), "-out", str(answers_file), "-subset", "-silent")
        command = java_command(java, *_OPENS, "-jar", str(folder / SPICE_JAR), *options, heap_mb=SPICE_HEAP_MB)
        run_java("SPICE", command, timeout_s=TIMEOUT_S, folder=folder)
        try:
            answers = json.loads(answers_file.read_text())
            scores = {entry["image_id"]: float(entry["scores"]["All"]["f"]) for entry in answers}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise JavaError(f"SPICE: its answer cannot be read: {error!r}") from error
    if scores.keys() != references.keys() or not all(map(np.isfinite, scores.values())):
        raise JavaError(f"SPICE: the results of {len(references)} images have other ids or invalid scores")
    return np.array([scores[image_id] for image_id in references], dtype=np.float64)


def prefetch_spice(source: str, folder: Path, reporter: Reporter, *, sha256: str | None = None) -> str:
    """Install SPICE's models from a file or URL into `folder`; return the archive's SHA-256, also recorded there.

    Without an expected `sha256`, the archive's SHA-1 must be `_ARCHIVE_SHA1`. BenchError where it cannot be read, has
    another checksum, or lacks the models; then nothing is installed.
    """
    with tempfile.TemporaryDirectory(prefix="bench-spice-") as temporary:
        if source.startswith(("https://", "http://")):
            with reporter.task("archive (MB)", 0) as task:
                elsewhere = "download it elsewhere, then: bench prefetch spice --from FILE"
                archive = fetch(source, Path(temporary) / "archive.zip", progress=task, otherwise=elsewhere)
        elif "://" not in source or source.startswith("file://"):
            archive = Path(url2pathname(urlsplit(source).path)) if "://" in source else expanded(source)
        else:
            raise BenchError(f"{source} is neither a file nor an http URL", "give --from FILE-OR-URL")
        archive_sha256 = _check(archive, sha256)
        for jar in CORENLP_JARS:
            _extract(archive, f"{ARCHIVE}/{jar}", folder / "lib" / jar)
    for origin in (packaged_spice() / SPICE_JAR, *sorted((packaged_spice() / "lib").glob("*.jar"))):
        with replacing(folder / origin.relative_to(packaged_spice())) as part:
            shutil.copyfile(origin, part)
    write_text(
        folder / "source.json", canonical_json({"source": without_passwords(source), "sha256": archive_sha256}) + "\n"
    )
    return archive_sha256


def _check(archive: Path, sha256: str | None) -> str:
    try:
        check_regular(archive)
        archive_sha256 = sha256_of(archive)
        with archive.open("rb") as file:
            archive_sha1 = hashlib.file_digest(file, lambda: hashlib.sha1(usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise BenchError(f"{archive} cannot be read: {error.strerror or error}") from error
    if sha256 is not None and archive_sha256 != sha256.lower():
        raise BenchError(f"{archive.name} is not the requested archive: its SHA-256 is {archive_sha256}")
    if sha256 is None and archive_sha1 != _ARCHIVE_SHA1:
        raise BenchError(
            f"{archive.name} is not the known {ARCHIVE}.zip: its SHA-1 is {archive_sha1}, not {_ARCHIVE_SHA1}",
            f"if you trust it, add --sha256 {archive_sha256}",
        )
    return archive_sha256


def _extract(archive: Path, member: str, target: Path) -> None:
    try:
        with zipfile.ZipFile(archive) as opened, replacing(target) as part:
            part.write_bytes(opened.read(member))
    except (KeyError, zipfile.BadZipFile, OSError) as error:
        raise BenchError(f"{archive.name} does not contain {member}: {error}") from error
