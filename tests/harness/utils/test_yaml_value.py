"""JSON of any origin and values of `--set`: read, or refused with one short sentence that names where they stand."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from harness.config.load import load_preset
from harness.utils.errors import BenchError
from harness.utils.json_io import read_json
from harness.utils.yaml_value import parse_yaml_value
from tests.harness.conftest import bench

_BOMB = "[&a [x,x,x,x,x,x,x,x,x], &b [*a,*a,*a,*a,*a,*a,*a,*a,*a], [*b,*b,*b,*b,*b,*b,*b,*b,*b]]"


@pytest.mark.parametrize(
    ("text", "value"),
    [("3", 3), ("1.0e-4", 1e-4), ("[1, {a: b}]", [1, {"a": "b"}]), ("", None), ("yes", True), ("'Ä'", "Ä")],
)
def test_plain_values_are_read(text: str, value: Any) -> None:
    assert parse_yaml_value(f"a={text}", text) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_BOMB, "aliases (*a) are not read"),
        ("[" * 1_500, "more than 10 brackets"),
        ("- " * 900, "more than 10 brackets"),
        ("[" * 3_000, "3,000 characters"),
        ("{a: [", "is not a YAML value"),
        ("2001-99-99", "is not a YAML value"),
        ('!!int ""', "is not a YAML value"),
        ("!!bool x", "is not a YAML value"),
        ("!!timestamp x", "is not a YAML value"),
        ("!!python/object:os.system x", "is not a YAML value"),
        ("? [a]\n: b", "is not a YAML value"),
        ("{a: 1, b: {c: 1, d: 2, c: 1}}", "the key 'c' again"),
        ("1: a\n0x1: b", "line 2 has the key 1 again, as line 1"),
        ("\x00", "is not a YAML value"),
    ],
)
def test_other_values_are_one_short_sentence(text: str, said: str) -> None:
    with pytest.raises(BenchError) as caught:
        parse_yaml_value(f"size.d_model={text}", text)
    assert said in str(caught.value)
    assert str(caught.value).startswith("--set ")
    assert len(str(caught.value)) < 450
    assert "\n" not in str(caught.value)


def test_presets_and_imports_read_values_the_same_way() -> None:
    with pytest.raises(BenchError, match="is not a YAML value"):
        load_preset("smoke", ("size.d_model=[",))
    long = "x" * 5_000
    with pytest.raises(BenchError, match="no such setting") as caught:
        load_preset("smoke", (f"name.{long}=3",))
    assert len(str(caught.value)) < 200
    for value in (_BOMB, "[" * 3_000):
        result = bench("import-weights", "expansionnet_v2", "c.pth", "--vocabulary", "v", "--set", f"n_heads={value}")
        assert isinstance(result.exception, BenchError)
        assert str(result.exception).startswith("--set 'n_heads=[")


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
    with pytest.raises(BenchError, match=r"bomb .*0\.001 GB"):
        read_json(tmp_path / "bomb")
