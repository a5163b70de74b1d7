"""Transfers: whole, continued after breaks, and refused with one sentence."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.data.download.sources import RemoteFile
from harness.data.download.transfer import ATTEMPTS, PART, ResumingDownloader, fetch
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from tests.faults.test_full_disk import no_file_beyond
from tests.harness.data.download.conftest import Site, sha256

CONTENT = bytes(range(256)) * 20


def fetch_big(site: Site, folder: Path, *, digest: str | None = None, size: int | None = None) -> Path:
    """Fetch `big.zip` of the site without waiting after breaks."""
    file = RemoteFile(url=f"{site.url}/big.zip", sha256=digest, bytes=size)
    return fetch(file, folder, Reporter(), pause=lambda _: None)


def refused(site: Site, folder: Path, **expected: object) -> BenchError:
    """The error of fetching `big.zip`."""
    with pytest.raises(BenchError) as caught:
        fetch_big(site, folder, **expected)
    return caught.value


def test_a_file_comes_whole_and_is_not_fetched_twice(site: Site, tmp_path: Path) -> None:
    site.files["big.zip"] = CONTENT
    for _ in range(2):
        assert fetch_big(site, tmp_path, digest=sha256(CONTENT)).read_bytes() == CONTENT
    assert site.asked == [("big.zip", None)]
    assert [path.name for path in tmp_path.iterdir()] == ["big.zip"]


def test_a_broken_connection_is_continued_at_the_byte_that_is_missing(site: Site, tmp_path: Path) -> None:
    site.files["big.zip"], site.cuts = CONTENT, [1000, 500]
    assert fetch_big(site, tmp_path, digest=sha256(CONTENT), size=len(CONTENT)).read_bytes() == CONTENT
    assert [wanted for _, wanted in site.asked] == [None, "bytes=1000-", "bytes=1500-"]


def test_a_command_that_gave_up_is_continued_by_the_next(site: Site, tmp_path: Path) -> None:
    site.files["big.zip"], site.cuts = CONTENT, [1000] + [0] * ATTEMPTS
    error = refused(site, tmp_path)
    assert f"broke off {ATTEMPTS} times at byte 1,000" in str(error)
    assert "the same command continues where it stopped" in str(error.hint)
    assert not (tmp_path / "big.zip").exists()
    assert fetch_big(site, tmp_path).read_bytes() == CONTENT
    assert site.asked[-1] == ("big.zip", "bytes=1000-")


def test_a_server_without_ranges_sends_the_whole_again(site: Site, tmp_path: Path) -> None:
    site.files["big.zip"], site.cuts, site.ranges = CONTENT, [1000], False
    assert fetch_big(site, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("there", [CONTENT, CONTENT + b"more"])
def test_what_is_whole_or_longer_is_settled_with_the_server(site: Site, tmp_path: Path, there: bytes) -> None:
    site.files["big.zip"] = CONTENT
    (tmp_path / f"big.zip{PART}").write_bytes(there)
    assert fetch_big(site, tmp_path).read_bytes() == CONTENT


def test_another_file_is_deleted(site: Site, tmp_path: Path) -> None:
    site.files["big.zip"] = CONTENT
    error = refused(site, tmp_path, digest="0" * 64)
    assert f"its SHA-256 is not {'0' * 64}" in str(error)
    assert "--mirror URL" in str(error.hint)
    assert "5,120 bytes, not 7" in str(refused(site, tmp_path, size=7))
    assert list(tmp_path.iterdir()) == []


def test_user_and_password_of_an_address_are_sent_and_never_said(site: Site, tmp_path: Path) -> None:
    site.files["big.zip"], site.login = CONTENT, "Basic bWU6c2VAY3JldA=="  # of me:se@cret
    site.url = site.url.replace("//", "//me:se%40cret@")
    assert fetch_big(site, tmp_path / "right").read_bytes() == CONTENT
    site.url = site.url.replace("se%40cret", "secret")
    error = refused(site, tmp_path / "wrong")
    assert "//me:***@127.0.0.1" in str(error)
    assert "answers 401" in str(error)
    assert "secret" not in f"{error} {error.hint}"


def test_a_server_that_has_no_such_file_is_asked_once(site: Site, tmp_path: Path) -> None:
    assert "the server answers 404 Not Found" in str(refused(site, tmp_path))
    assert len(site.asked) == 1


def test_without_a_network_one_sentence_says_so(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # and never listens
        error = refused(Site(f"http://127.0.0.1:{unused.getsockname()[1]}"), tmp_path)
    assert "cannot be reached: Connection refused" in str(error)
    assert "check the network" in str(error.hint)


def test_room_is_asked_for_before_the_first_byte(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site.files["big.zip"] = CONTENT
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5000))
    error = refused(site, tmp_path)
    assert "big.zip needs 0.00 GB more" in str(error)
    assert "--to FOLDER" in str(error.hint)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_keeps_what_came(site: Site, tmp_path: Path) -> None:
    site.files["big.zip"] = CONTENT
    with no_file_beyond(2000):
        error = refused(site, tmp_path)
    assert f"big.zip{PART} cannot be written: File too large" in str(error)
    assert "make room" in str(error.hint)
    assert fetch_big(site, tmp_path).read_bytes() == CONTENT


def test_pooch_is_named_where_it_is_missing(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.data.download.transfer.find_spec", lambda _: None)
    error = refused(site, tmp_path)
    assert "pooch" in str(error)
    assert error.hint == "uv sync --inexact --extra download"


def test_progress_tells_the_bytes_that_are_there(site: Site, tmp_path: Path) -> None:
    site.files["big.zip"], site.cuts, told = CONTENT, [1000], []
    ResumingDownloader(tmp_path / "part", told=told.append)(f"{site.url}/big.zip", tmp_path / "out", None)
    assert (tmp_path / "out").read_bytes() == CONTENT
    assert told[0] == 0
    assert 1000 in told
    assert told[-1] == len(CONTENT)
