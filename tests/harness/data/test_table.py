"""Tables as people have them: encodings, quotation marks, and cells that hold lists."""

import codecs
from pathlib import Path

import pytest

from harness.data.formats.table import caption_list, read_table
from harness.utils.errors import BenchError


def cells(path: Path) -> list[list[str]]:
    return [row.cells for row in read_table(path).rows]


@pytest.mark.parametrize(
    "encode",
    [
        str.encode,
        lambda text: codecs.BOM_UTF8 + text.encode(),
        lambda text: text.encode("utf-16"),
        lambda text: codecs.BOM_UTF16_BE + text.encode("utf-16-be"),
    ],
)
def test_encodings(tmp_path: Path, encode: object) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(encode("image,caption\na.jpg,ein Café\n"))  # type: ignore[operator]
    assert read_table(path).headings == ["image", "caption"]
    assert cells(path) == [["a.jpg", "ein Café"]]


def test_another_encoding_is_refused_with_a_command(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("image,caption\na.jpg,ein Café\n".encode("latin1"))
    with pytest.raises(BenchError) as refused:
        read_table(path)
    assert "iconv -f latin1 -t utf-8 a.csv" in (refused.value.hint or "")


@pytest.mark.parametrize("delimiter", ["\t", "|"])
def test_a_stray_quotation_mark_joins_no_lines(tmp_path: Path, delimiter: str) -> None:
    path = tmp_path / "a.tsv"
    rows = [["a.jpg", '"Beware of the goat'], ["b.jpg", "two girls"], ["c.jpg", 'a pipe of 12"']]
    path.write_text("\n".join(map(delimiter.join, [["image", "caption"], *rows])))
    assert cells(path) == rows


def test_cells_that_are_quoted_as_a_whole_lose_their_marks(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text('image\tcaption\n"a.jpg"\t"a dog\tand a cat"\n"b.jpg"\t"he says ""hi"""\n')
    assert cells(path) == [["a.jpg", "a dog\tand a cat"], ["b.jpg", 'he says "hi"']]


def test_lines_of_a_caption_are_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('image,caption\na.jpg,"Two goats, one kid,\nand a wall, far away"\nb.jpg,a dog\n')
    assert cells(path) == [["a.jpg", "Two goats, one kid,\nand a wall, far away"], ["b.jpg", "a dog"]]
    path.write_text('image,caption\na.jpg,"Beware\nb.jpg,of the goat"\n')
    with pytest.raises(BenchError, match="joins the lines 2 to 3"):
        read_table(path)


def test_a_quotation_mark_that_joins_rows_of_a_csv_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('image,caption\na.jpg,"beware\nb.jpg,two girls\nc.jpg,a pipe"\n')
    with pytest.raises(BenchError, match="joins the lines 2 to 4"):
        read_table(path)


@pytest.mark.parametrize(
    ("cell", "captions"),
    [
        ('["a dog", "one dog"]', ["a dog", "one dog"]),
        ("['a dog', \"it's a dog\"]", ["a dog", "it's a dog"]),
        ("['a dog'\n 'one dog']", None),  # numpy writes no commas; Python would join the two
        ("[1, 2]", None),
        ("[a dog]", None),
        ("__import__('os')", None),
        ("[__import__('os')]", None),
        ("a dog", None),
    ],
)
def test_lists_in_cells(cell: str, captions: list[str] | None) -> None:
    assert caption_list(cell) == captions
