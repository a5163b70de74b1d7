"""Files that are whole or absent."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from harness.utils.atomic import replacing, write_text


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    target = tmp_path / "file.json"
    write_text(target, "old")

    def fail_halfway() -> None:
        with replacing(target) as temporary:
            temporary.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_others_may_read_what_the_umask_lets_them(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_text(tmp_path / "new" / "file.json", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "new" / "file.json").stat().st_mode & 0o777 == 0o644


def test_what_a_killed_process_began_is_removed_a_day_later(tmp_path: Path) -> None:
    for name, hours in ((".file.json.0a.partial", 25), (".file.json.0b.partial", 1), (".other.0a.partial", 25)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (begun := time.time() - 3600 * hours, begun))
    write_text(tmp_path / "file.json", "whole")
    assert {path.name for path in tmp_path.iterdir()} == {"file.json", ".file.json.0b.partial", ".other.0a.partial"}
