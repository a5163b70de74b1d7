"""Parquet files and saved folders of the Hugging Face Hub become the same data set as a table of the same captions."""

import io
import json
import sys
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from harness.data.formats.references import read_references
from harness.data.formats.registry import read_annotations
from harness.utils.errors import BenchError
from tests.harness.conftest import bench, bench_ok

pa = pytest.importorskip("pyarrow", reason="uv sync --inexact --extra hub")
pq = pytest.importorskip("pyarrow.parquet")

SPLITS = {"train": 3, "validation": 2, "test": 2}
PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
Rows = list[dict[str, Any]]


def picture(number: int, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 6), (20 * number, 40, 3)).save(file, kind)
    return file.getvalue()


def rows_of(split: str, first: int, count: int) -> Rows:
    return [
        {
            "image": {"bytes": picture(number), "path": f"{split}_{number}.png"},
            "caption": [f"a dog number {number}", f"one animal, no {number}"],
        }
        for number in range(first, first + count)
    ]


def all_rows() -> dict[str, Rows]:
    rows, first = {}, 0
    for split, count in SPLITS.items():
        rows[split] = rows_of(split, first, count)
        first += count
    return rows


def table(rows: Rows) -> Any:
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return pa.table(
        {name: pa.array(values, PICTURE if isinstance(values[0], dict) else None) for name, values in columns.items()}
    )


def write_parquet(path: Path, rows: Rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table(rows), path)
    return path


def write_dataset(folder: Path, rows: Rows, split: str | None = None) -> Path:
    """As `Dataset.save_to_disk`, in two files."""
    folder.mkdir(parents=True)
    files = [f"data-{number:05d}-of-00002.arrow" for number in range(2)]
    for file, part in zip(files, (rows[:1], rows[1:]), strict=True):
        content = table(part)
        with pa.OSFile(str(folder / file), "wb") as sink, pa.ipc.new_stream(sink, content.schema) as writer:
            writer.write_table(content)
    state = {"_data_files": [{"filename": file} for file in files], "_split": split}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def sharded(folder: Path) -> Path:
    for split, rows in all_rows().items():
        write_parquet(folder / "data" / f"{split}-00000-of-00002.parquet", rows[:1])
        write_parquet(folder / "data" / f"{split}-00001-of-00002-a09b74b3ef9c3b56.parquet", rows[1:])
    return folder


def by_folder(folder: Path) -> Path:
    for split, rows in all_rows().items():
        write_parquet(folder / split / "0000.parquet", rows)
    return folder


def one_file(folder: Path) -> Path:
    rows = [row | {"split": split} for split, rows in all_rows().items() for row in rows]
    return write_parquet(folder / "captions.parquet", rows)


def numbered(folder: Path) -> Path:
    rows = [
        {
            "image": row["image"],
            "caption_0": row["caption"][0],
            "caption_1": row["caption"][1],
            "split": split,
        }
        for split, rows in all_rows().items()
        for row in rows
    ]
    return write_parquet(folder / "captions.parquet", rows)


def a_row_a_caption(folder: Path) -> Path:
    for split, rows in all_rows().items():
        flat = [{"image": row["image"], "text": text} for row in rows for text in row["caption"]]
        write_parquet(folder / f"{split}.parquet", flat)
    return folder


def saved(folder: Path) -> Path:
    for split, rows in all_rows().items():
        write_dataset(folder / split, rows)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": list(SPLITS)}))
    return folder


def content_of(out: Path) -> list[tuple[str, list[str], str]]:
    images = json.loads(out.read_text())["images"]
    return sorted((image["filename"], [one["raw"] for one in image["sentences"]], image["split"]) for image in images)


def refused(*words: object) -> BenchError:
    error = bench(*words).exception
    assert isinstance(error, BenchError), error
    return error


@pytest.mark.parametrize(
    "form",
    [sharded, by_folder, one_file, numbered, a_row_a_caption, saved],
    ids=lambda form: form.__name__,
)
def test_the_data_set_is_that_of_a_table(form: Callable[[Path], Path], tmp_path: Path) -> None:
    source = form(tmp_path / "hub")
    out, images = tmp_path / "dataset.json", tmp_path / "pictures"
    words = ("data", "convert", source, "--images", images, "--force", "--out", out)
    assert "7 pictures written" in bench_ok(*words).output
    lines = [
        f'{row["image"]["path"]},"{text}",{split}'
        for split, rows in all_rows().items()
        for row in rows
        for text in row["caption"]
    ]
    (tmp_path / "captions.csv").write_text("\n".join(["image,caption,split", *lines]))
    bench_ok("data", "convert", tmp_path / "captions.csv", "--images", images, "--out", tmp_path / "table.json")
    assert content_of(out) == content_of(tmp_path / "table.json")
    assert (images / "train_0.png").read_bytes() == picture(0)
    assert "0 pictures written" in bench_ok(*words).output, "they are there"
    bench_ok("data", "verify", out, "--images", images, "--workspace", tmp_path / "workspace")


def test_pictures_are_written_beside_the_annotations(tmp_path: Path) -> None:
    out = tmp_path / "made" / "dataset.json"
    bench_ok("data", "convert", sharded(tmp_path / "hub"), "--out", out)
    assert len(list((tmp_path / "made" / "images").iterdir())) == sum(SPLITS.values())
    bench_ok("data", "verify", out, "--workspace", tmp_path / "workspace")


def test_a_saved_part_names_its_split(tmp_path: Path) -> None:
    annotations = read_annotations(write_dataset(tmp_path / "saved", rows_of("train", 0, 3), "validation"))
    assert [image.split for image in annotations.images.values()] == ["val"] * 3


@pytest.mark.parametrize("path", ["../x.jpg", "/etc/x.jpg", "C:\\x.jpg", ".bashrc", None, ""])
def test_a_picture_without_a_plain_name_is_named_by_its_row(path: str | None, tmp_path: Path) -> None:
    kinds = ["PNG", "JPEG", "WEBP", "GIF"]
    rows = [
        {"image": {"bytes": picture(number, kind), "path": path}, "caption": f"a dog {number}"}
        for number, kind in enumerate(kinds)
    ]
    source = write_parquet(tmp_path / "hub" / "train-00000-of-00001.parquet", rows)
    bench_ok("data", "convert", source, "--images", tmp_path / "a" / "b", "--out", tmp_path / "dataset.json")
    names = ["train-000000.png", "train-000001.jpg", "train-000002.webp", "train-000003.gif"]
    assert [name for name, _, _ in content_of(tmp_path / "dataset.json")] == names
    assert sorted(file.name for file in tmp_path.glob("a/**/*") if file.is_file()) == names


def test_one_name_in_two_splits_is_two_pictures(tmp_path: Path) -> None:
    for number, split in enumerate(SPLITS):
        rows = [{"image": {"bytes": picture(number), "path": "0.png"}, "caption": split}]
        write_parquet(tmp_path / "hub" / f"{split}.parquet", rows)
    bench_ok("data", "convert", tmp_path / "hub", "--out", tmp_path / "dataset.json")
    files = sorted(path.relative_to(tmp_path / "images").as_posix() for path in tmp_path.glob("images/*/*"))
    assert files == ["test/0.png", "train/0.png", "val/0.png"]


def test_a_file_with_other_content_is_not_replaced(tmp_path: Path) -> None:
    source, images = sharded(tmp_path / "hub"), tmp_path / "images"
    images.mkdir()
    (images / "test_5.png").write_text("mine")
    error = refused("data", "convert", source, "--images", images, "--out", tmp_path / "dataset.json")
    assert "test_5.png" in str(error)
    assert (images / "test_5.png").read_text() == "mine"


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    rows = [{"image": {"bytes": picture(1), "path": "out/a.png"}, "caption": "a dog"}]
    source = write_parquet(tmp_path / "train.parquet", rows)
    (tmp_path / "images").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "images" / "out").symlink_to(tmp_path / "elsewhere")
    error = refused("data", "convert", source, "--out", tmp_path / "dataset.json")
    assert "leads out" in str(error)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_file_names_without_embedded_pictures(tmp_path: Path) -> None:
    rows = [{"file_name": f"{number}.png", "caption": f"a dog {number}", "split": "train"} for number in range(3)]
    source = write_parquet(tmp_path / "captions.parquet", rows)
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(picture(number))
    said = bench_ok("data", "convert", source, "--images", tmp_path, "--out", tmp_path / "dataset.json").output
    assert "written" not in said
    assert [name for name, _, _ in content_of(tmp_path / "dataset.json")] == ["0.png", "1.png", "2.png"]


def test_references_need_no_pictures(tmp_path: Path) -> None:
    rows = [
        {
            "image": {"bytes": b"no picture", "path": f"{number}.jpg"},
            "image_id": 10 + number,
            "answer": [f"a dog {number}"],
        }
        for number in range(3)
    ]
    source = write_parquet(tmp_path / "hub" / "test-00000-of-00001.parquet", rows).parent
    with pytest.raises(BenchError, match="answer") as error:
        read_references(source)
    assert "--reference-field" in str(error.value.hint)
    references = read_references(source, caption_field="answer")
    assert references.captions == {10: ("a dog 0",), 11: ("a dog 1",), 12: ("a dog 2",)}
    assert references.files == {10: "0.jpg", 11: "1.jpg", 12: "2.jpg"}


def test_columns_with_different_captions_are_asked_about(tmp_path: Path) -> None:
    rows = [{"image": {"bytes": None, "path": "a.jpg"}, "caption": "a dog", "text": "EXIT"}]
    source = write_parquet(tmp_path / "captions.parquet", rows)
    with pytest.raises(BenchError, match="caption and text hold different texts"):
        read_references(source)
    assert read_references(source, caption_field="text").captions == {0: ("EXIT",)}


def test_an_id_with_two_files_is_named(tmp_path: Path) -> None:
    rows = [
        {"image": {"bytes": picture(number), "path": f"{number}.png"}, "image_id": 7, "caption": "a dog"}
        for number in range(2)
    ]
    source = write_parquet(tmp_path / "captions.parquet", rows)
    error = refused("data", "convert", source, "--split-by", "hash:40/30/30", "--out", tmp_path / "dataset.json")
    assert "images with two files: 1 (7 (captions.parquet, row 1: 1.png, before 0.png))" in str(error)


@pytest.mark.parametrize("name", ["train-00000-of-00001.parquet", "train/0000.parquet"])
def test_several_data_sets_in_one_folder_are_refused(name: str, tmp_path: Path) -> None:
    for language in ("en", "de"):
        write_parquet(tmp_path / language / name, rows_of("train", 0, 2))
    with pytest.raises(BenchError, match="several data sets: de, en"):
        read_annotations(tmp_path)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.parquet").write_bytes(b"PAR1 and nothing else")
    with pytest.raises(BenchError, match=r"train\.parquet cannot be read"):
        read_annotations(tmp_path / "train.parquet")
    folder = write_dataset(tmp_path / "saved", rows_of("train", 0, 3))
    (folder / "data-00001-of-00002.arrow").unlink()
    with pytest.raises(BenchError, match=r"data-00001-of-00002\.arrow cannot be read"):
        read_annotations(folder)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = one_file(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BenchError, match="pyarrow") as error:
        read_annotations(source)
    assert "pip install 'captionbench[hub]'" in str(error.value.hint)


def _zip(path: Path, names: Sequence[str]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "text")
    return path


def _tar(path: Path) -> Path:
    with tarfile.open(path, "w") as archive:
        archive.add(__file__, "0.txt")
    return path


@pytest.mark.parametrize("in_folder", [False, True])
@pytest.mark.parametrize(
    ("name", "kind", "advice"),
    [
        ("train-0000.tar", "a tar archive (webdataset)", "tar xf"),
        ("captions.xlsx", "a spreadsheet (xlsx)", "save it as CSV"),
        ("pictures.zip", "a zip archive", "unzip"),
    ],
)
def test_other_archives_are_refused(name: str, kind: str, advice: str, in_folder: bool, tmp_path: Path) -> None:
    path = tmp_path / name
    _tar(path) if path.suffix == ".tar" else _zip(path, ["xl/workbook.xml"])
    error = refused("data", "convert", tmp_path if in_folder else path, "--out", tmp_path.with_suffix(".json"))
    assert kind in str(error)
    assert advice in str(error.hint)


def test_numbers_with_a_point_are_ids_and_no_caption_is_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "references.parquet"
    pq.write_table(pa.table({"image_id": [7.0, 9.0], "caption": ["a dog", "a cat"]}), path)
    assert read_references(path).captions == {7: ("a dog",), 9: ("a cat",)}
    pq.write_table(pa.table({"image_id": [7], "caption": ["a dog"], "caption_2": ["one dog"]}), path)
    with pytest.raises(BenchError, match="caption, caption_2"):
        read_references(path)
