"""Only regular files of a bounded size are read; everything else is refused at once, with its reason."""

import errno
import os
import re
import socket
from pathlib import Path

import pytest

from results.errors import StoreError
from results.files import DEFAULT_LIMIT_GB, check_regular, limit_bytes, read_bytes, read_text


def refusal(path: Path) -> str:
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the reason is what is looked at
        read_bytes(path)
    assert caught.value.filename == str(path)
    return str(caught.value.strerror)


def test_regular_files_are_read_through_links(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes("Ä\r\n".encode())
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        assert check_regular(tmp_path / name) == 4
        assert read_bytes(tmp_path / name) == b"\xc3\x84\r\n"
        assert read_text(tmp_path / name) == "Ä\r\n"


def test_pipes_sockets_folders_and_devices_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    assert "a pipe" in refusal(tmp_path / "pipe")
    assert "a device" in refusal(tmp_path / "zero")
    assert "a folder" in refusal(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("s")
        assert "a socket" in refusal(tmp_path / "s")


def test_names_that_lead_nowhere_have_the_systems_reason(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    assert refusal(tmp_path / "loop") == os.strerror(errno.ELOOP)
    assert refusal(tmp_path / "absent") == os.strerror(errno.ENOENT)
    assert refusal(tmp_path / ("x" * 300)) == os.strerror(errno.ENAMETOOLONG)
    assert re.search("null (byte|character)", refusal(tmp_path / "a\0b")), "Python 3.14 has another word"


def test_the_limit_is_stated_and_adjustable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 1001)
    monkeypatch.setenv("BENCH_MAX_FILE_GB", "1e-6")  # 1,000 bytes
    assert (
        refusal(file)
        == "it has more than 1e-06 GB, the most that is read; if it is meant, set BENCH_MAX_FILE_GB higher"
    )
    monkeypatch.setenv("BENCH_MAX_FILE_GB", "1.001e-6")
    assert len(read_bytes(file)) == 1001
    monkeypatch.delenv("BENCH_MAX_FILE_GB")
    assert limit_bytes() == DEFAULT_LIMIT_GB * 10**9


def test_a_sparse_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(10**11)
    assert "more than 1 GB" in refusal(tmp_path / "huge")


def test_files_that_tell_no_size_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path("/proc/self/status")  # a regular file of 0 bytes, as the system tells
    assert check_regular(here) == 0
    assert b"Pid:" in read_bytes(here)
    monkeypatch.setenv("BENCH_MAX_FILE_GB", "1e-8")
    assert "more than" in refusal(here)


@pytest.mark.parametrize("value", ["nan", "inf", "0", "-1", "many"])
def test_limits_that_are_no_numbers_are_errors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, value: str) -> None:
    monkeypatch.setenv("BENCH_MAX_FILE_GB", value)
    with pytest.raises(StoreError, match="BENCH_MAX_FILE_GB"):
        read_bytes(tmp_path)


def test_text_that_is_not_utf8_is_named_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes("caf\u00e9".encode("latin-1"))
    with pytest.raises(OSError, match="not text in UTF-8, from byte 3 on"):
        read_text(tmp_path / "latin")
