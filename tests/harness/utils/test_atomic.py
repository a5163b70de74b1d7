"""Files that are whole or absent."""

from __future__ import annotations

import os
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
