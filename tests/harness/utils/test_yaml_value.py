"""Values of `--set`: plain YAML is read, everything that could fill memory or the screen is one short sentence."""

from typing import Any

import pytest

from harness.config.load import load_preset
from harness.utils.errors import BenchError
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
