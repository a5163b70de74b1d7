"""JSON of any outside origin is parsed, or refused with one sentence that names the file."""

import gzip
import json
from pathlib import Path

import pytest

from harness.utils.errors import BenchError
from harness.utils.json_io import read_json


@pytest.mark.parametrize("packed", [False, True])
def test_json_is_read_plain_and_gzipped(tmp_path: Path, packed: bool) -> None:
    content = {"a": [1, 2.5, "Ä"], "b": None}
    raw = json.dumps(content, ensure_ascii=False).encode()
    (tmp_path / "file").write_bytes(gzip.compress(raw, mtime=0) if packed else raw)
    assert read_json(tmp_path / "file") == content


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'["caf\xe9"]', "is not text in UTF-8, from byte 5 on"),
        (b"1" * 5000, "is not valid JSON"),
        (b"", "is not valid JSON"),
        (b'[{"a": 1, "b": {"c": 1, "d": 2, "c": 1}}]', "the key 'c' twice"),
        (gzip.compress(b"[1]", mtime=0)[:-9], "cannot be read"),
    ],
)
def test_what_is_not_json_is_named(tmp_path: Path, raw: bytes, said: str) -> None:
    (tmp_path / "file.json").write_bytes(raw)
    with pytest.raises(BenchError, match=said) as caught:
        read_json(tmp_path / "file.json")
    assert str(caught.value).startswith(str(tmp_path / "file.json"))
    assert len(str(caught.value)) < 500


def test_a_packed_bomb_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bomb").write_bytes(gzip.compress(b" " * 3_000_000, mtime=0))
    monkeypatch.setenv("BENCH_MAX_FILE_GB", "0.001")
    with pytest.raises(BenchError, match=r"bomb cannot be read: unpacked it has more than 0\.001 GB"):
        read_json(tmp_path / "bomb")
