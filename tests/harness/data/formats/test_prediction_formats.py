"""Each form of predictions is told by its content, and never gives an image the caption of another."""

import gzip
import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data.formats.content import read_content
from harness.data.formats.match import MatchOptions
from harness.data.formats.prediction_formats import PREDICTION_FORMATS
from harness.data.formats.predictions import read_predictions
from harness.data.formats.references import read_references
from harness.utils.errors import BenchError
from tests.harness.conftest import bench_ok
from tests.harness.data.formats.prediction_examples import CAPTIONS, EXAMPLES

FILES = {image: f"val2014/COCO_val2014_{image:012d}.jpg" for image in CAPTIONS}
NAMINGS = {
    "number": {image: image for image in CAPTIONS},
    "text": {image: str(image) for image in CAPTIONS},
    "zeros": {image: f"{image:012d}" for image in CAPTIONS},
    "file": {image: Path(file).name for image, file in FILES.items()},
    "stem": {image: Path(file).stem for image, file in FILES.items()},
    "windows": {image: f"D:\\data\\{Path(file).name}" for image, file in FILES.items()},
    "relative": {image: f"./{file}" for image, file in FILES.items()},
}
ORDERS = list(itertools.permutations(CAPTIONS))


def test_every_format_has_an_example() -> None:
    assert EXAMPLES.keys() == {one.name for one in PREDICTION_FORMATS}


@pytest.mark.parametrize("naming", NAMINGS)
@pytest.mark.parametrize("name", EXAMPLES)
def test_one_format_is_sure_of_a_file(name: str, naming: str, tmp_path: Path) -> None:
    file, write = EXAMPLES[name]
    (tmp_path / file).write_text(write(NAMINGS[naming]))
    content = read_content(tmp_path / file)
    assert [one.name for one in PREDICTION_FORMATS if one.sniff(content)] == [name]


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "lines"])
@given(
    naming=st.sampled_from(list(NAMINGS)),
    order=st.sampled_from(ORDERS),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    ends=st.sampled_from(["\n", "\r\n"]),
    packed=st.booleans(),
)
def test_an_image_never_gets_the_caption_of_another(
    name: str,
    tmp_path_factory: pytest.TempPathFactory,
    naming: str,
    order: tuple[int, ...],
    encoding: str,
    ends: str,
    packed: bool,
) -> None:
    file, write = EXAMPLES[name]
    path = tmp_path_factory.mktemp("predictions") / file
    raw = write(NAMINGS[naming]).replace("\n", ends).encode(encoding)
    path.write_bytes(gzip.compress(raw) if packed else raw)
    wanted = {image: FILES[image] for image in order}
    found = read_predictions(path, wanted, wanted)
    assert (found.captions, found.problems, found.by_position) == (CAPTIONS, {}, False)


def test_lines_are_taken_by_position_alone(tmp_path: Path) -> None:
    file, write = EXAMPLES["lines"]
    path = tmp_path / file
    path.write_text(write({}))
    with pytest.raises(BenchError) as refused:
        read_predictions(path, CAPTIONS)
    assert "--by-position" in (refused.value.hint or "")
    assert read_predictions(path, CAPTIONS, options=MatchOptions(by_position=True)).captions == CAPTIONS


def test_the_number_of_a_sample_is_no_id_where_its_document_has_one(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    samples = [
        {"doc_id": other, "doc": {"image_id": image}, "filtered_resps": [f"of {image}"]}
        for image, other in ((1, 2), (2, 3), (3, 1))
    ]
    path.write_text("\n".join(map(json.dumps, samples)))
    assert read_predictions(path, [1, 2, 3]).captions == {1: "of 1", 2: "of 2", 3: "of 3"}
    path = tmp_path / "samples.json"
    path.write_text(json.dumps({"args": {}, "logs": samples}))
    assert read_predictions(path, [3, 1, 2]).captions == {1: "of 1", 2: "of 2", 3: "of 3"}


@pytest.mark.parametrize("field", ["index", "question_id", "doc_id"])
def test_numbers_of_rows_are_no_ids_of_images_in_another_order(field: str, tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    path.write_text(json.dumps([{field: row, "text": f"row {row}"} for row in range(3)]))
    with pytest.raises(BenchError):
        read_predictions(path, [2, 0, 1])
    assert read_predictions(path, [0, 1, 2]).captions == {0: "row 0", 1: "row 1", 2: "row 2"}
    chosen = MatchOptions(id_field=field)
    assert read_predictions(path, [2, 0, 1], options=chosen).captions == {0: "row 0", 1: "row 1", 2: "row 2"}


def test_the_number_of_a_row_says_its_place(tmp_path: Path) -> None:
    path = tmp_path / "model.tsv"
    path.write_text("index\tprediction\n2\tthe third\n0\tthe first\n1\tthe second\n")
    found = read_predictions(path, [7, 3, 5], options=MatchOptions(by_position=True))
    assert found.captions == {7: "the first", 3: "the second", 5: "the third"}


def test_a_field_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "captions.txt"
    path.write_text("a dog\na cat\n")
    with pytest.raises(BenchError, match="--caption-field"):
        read_predictions(path, [1, 2], options=MatchOptions(by_position=True, caption_field="text"))
    path = tmp_path / "samples.jsonl"
    samples = [{"doc": {"image_id": image}, "resps": [["a dog"]], "raw": "a cat"} for image in (1, 2)]
    path.write_text("\n".join(map(json.dumps, samples)))
    assert read_predictions(path, [1, 2], options=MatchOptions(caption_field="raw")).captions == {
        1: "a cat",
        2: "a cat",
    }
    assert not read_predictions(path, [1, 2], options=MatchOptions(caption_field="nothing")).captions


def test_a_blank_line_is_of_an_image_too(tmp_path: Path) -> None:
    path = tmp_path / "captions.txt"
    path.write_text("a dog\n\na cat\n")
    found = read_predictions(path, [1, 2, 3], options=MatchOptions(by_position=True))
    assert (found.captions, sum(map(len, found.problems.values()))) == ({1: "a dog", 3: "a cat"}, 1)


def test_whole_numbers_that_pandas_wrote_are_ids(tmp_path: Path) -> None:
    path = tmp_path / "captions.csv"
    path.write_text("image_id,caption\n77.0,a cat\n391.0,a dog\n")
    assert read_predictions(path, [391, 77]).captions == {77: "a cat", 391: "a dog"}


def test_the_fields_to_choose_from_begin_with_the_likeliest(tmp_path: Path) -> None:
    path = tmp_path / "both.json"
    path.write_text(json.dumps([{"image_id": 1, "caption": "of people", "prediction": "of a system"}]))
    with pytest.raises(BenchError) as refused:
        read_predictions(path, [1])
    assert (refused.value.hint or "").endswith("--caption-field prediction")


def test_both_lists_of_formats_are_printed() -> None:
    listed = bench_ok("data", "formats").output
    assert all(one.name in listed for one in PREDICTION_FORMATS)


def test_a_named_format_overrides_the_content(tmp_path: Path) -> None:
    path = tmp_path / "captions.txt"
    path.write_text("text,caption\na dog, a cat\n")
    assert read_predictions(path, [1, 2], options=MatchOptions(by_position=True, format_name="lines")).captions == {
        1: "text,caption",
        2: "a dog, a cat",
    }
    assert read_predictions(path, [1], options=MatchOptions(by_position=True, caption_field="caption")).captions == {
        1: "a cat"
    }
    with pytest.raises(BenchError, match="no format of predictions"):
        read_predictions(path, [1], options=MatchOptions(format_name="karpathy"))


@pytest.mark.parametrize("other", EXAMPLES)
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_file_of_another_format_is_refused_or_read_rightly(name: str, other: str, tmp_path: Path) -> None:
    file, write = EXAMPLES[name]
    (tmp_path / file).write_text(write(NAMINGS["number"]))
    options = MatchOptions(format_name=other)
    try:
        found = read_predictions(tmp_path / file, CAPTIONS, options=options)
    except BenchError:
        return
    assert found.captions == CAPTIONS


@pytest.mark.parametrize("are_files", [False, True])
def test_it_is_told_whether_files_or_numbers_match(are_files: bool, tmp_path: Path) -> None:
    path, files = tmp_path / "captions.json", {1: "a.jpg", 2: "b.jpg"}
    path.write_text(
        json.dumps([{"image": files[image] if are_files else image, "caption": "a dog"} for image in files])
    )
    found = read_predictions(path, files, files)
    assert (found.are_files, found.id_field) == (are_files, "image")


@pytest.mark.parametrize(
    "beside",
    [
        {"caption": ["a reference"], "prediction": "a dog"},
        {"caption": "a reference", "prediction": ["a dog"]},
        {"caption": "a reference", "prediction": {"caption": "a dog"}},
        {"caption": "a reference", "output": ["a dog", "one dog"]},
    ],
)
def test_a_reference_is_never_taken_for_the_caption_beside_it(beside: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "captions.json"
    path.write_text(json.dumps([{"image_id": image, **beside} for image in (1, 2)]))
    with pytest.raises(BenchError) as refused:
        read_predictions(path, [1, 2])
    assert f"--caption-field {list(beside)[1]}" in (refused.value.hint or "")


def test_several_references_leave_the_caption_beside_them(tmp_path: Path) -> None:
    path = tmp_path / "captions.csv"
    path.write_text("image_id,caption,prediction\n" + "".join(f"{i},\"['a', 'b']\",of {i}\n" for i in (1, 2)))
    assert read_predictions(path, [2, 1]).captions == {1: "of 1", 2: "of 2"}


def test_ids_of_a_file_of_coco_are_those_of_its_images(tmp_path: Path) -> None:
    path = tmp_path / "captions.json"
    images = [{"id": 1, "file_name": "b.jpg"}, {"id": 2, "file_name": "a.jpg"}]
    captions = [{"image_id": 1, "caption": "of b"}, {"image_id": 2, "caption": "of a"}]
    path.write_text(json.dumps({"images": images, "annotations": captions}))
    assert read_predictions(path, [1, 2], {1: "a.jpg", 2: "b.jpg"}).captions == {1: "of a", 2: "of b"}


@pytest.mark.parametrize(
    "content",
    [
        {"annotations": [{"image_id": 1, "caption": "a"}], "predictions": [{"image_id": 1, "caption": "b"}]},
        {"image_ids": [2, 1], "captions": ["of 2", "of 1"]},
        {"image_id": [2, 1], "caption": ["of 2", "of 1"]},
    ],
)
def test_lists_side_by_side_are_refused(content: object, tmp_path: Path) -> None:
    path = tmp_path / "captions.json"
    path.write_text(json.dumps(content))
    with pytest.raises(BenchError, match="list"):
        read_predictions(path, [1, 2], options=MatchOptions(by_position=True))


@pytest.mark.parametrize("line", ["{name}\t{text}", "{name}.jpg,{text}", "{name}.jpg#0 {text}", "{name}: {text}"])
def test_names_that_lines_begin_with_are_not_ignored(line: str, tmp_path: Path) -> None:
    path = tmp_path / "captions.txt"
    path.write_text("\n".join(line.format(name=name, text=f"of {name}") for name in (7, 3, 5)))
    files = {image: f"{image}.jpg" for image in (3, 5, 7)}
    for by_position in (False, True):
        with pytest.raises(BenchError, match="begin with names of images"):
            read_predictions(path, files, files, options=MatchOptions(by_position=by_position))


def test_a_field_that_names_most_images_is_not_ignored(tmp_path: Path) -> None:
    path = tmp_path / "captions.json"
    path.write_text(json.dumps([{"photo": name, "caption": f"of {name}"} for name in ("c.jpg", "b.jpg", "x.jpg")]))
    files = {1: "a.jpg", 2: "b.jpg", 3: "c.jpg"}
    for by_position in (False, True):
        with pytest.raises(BenchError) as refused:
            read_predictions(path, files, files, options=MatchOptions(by_position=by_position))
        assert "--id-field photo" in (refused.value.hint or "")
    found = read_predictions(path, files, files, options=MatchOptions(id_field="photo"))
    assert found.captions == {3: "of c.jpg", 2: "of b.jpg"}


def test_the_number_of_a_sample_counts_beside_the_id_of_its_question(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    samples = [{"doc_id": row, "doc": {"id": 900 + row}, "filtered_resps": [f"row {row}"]} for row in (2, 0, 1)]
    path.write_text("\n".join(map(json.dumps, samples)))
    found = read_predictions(path, [7, 3, 5], options=MatchOptions(by_position=True))
    assert found.captions == {7: "row 0", 3: "row 1", 5: "row 2"}


def test_the_numbers_of_rows_that_pandas_writes_are_no_ids(tmp_path: Path) -> None:
    path = tmp_path / "captions.csv"
    path.write_text(",caption\n0,a dog\n1,a cat\n")
    with pytest.raises(BenchError, match="nothing names"):
        read_predictions(path, [1, 0])
    assert read_predictions(path, [1, 0], options=MatchOptions(by_position=True)).captions == {1: "a dog", 0: "a cat"}


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "captions.csv"
    path.write_text("image_id,caption,caption\n1,a dog,one dog\n")
    with pytest.raises(BenchError, match="several columns caption"):
        read_predictions(path, [1])


def test_a_file_of_another_split_is_not_its_namesake(tmp_path: Path) -> None:
    table = tmp_path / "references.csv"
    rows = [f"{split}/{image}.jpg,a {split} of {image},{split}" for split in ("test", "train") for image in range(3)]
    table.write_text("\n".join(["file_name,caption,split", *rows]))
    references = read_references(table, split="test")
    path = tmp_path / "captions.json"

    def read(folder: str) -> dict[int, str]:
        entries = [{"image": f"{folder}{image}.jpg", "caption": f"of {image}"} for image in range(3)]
        path.write_text(json.dumps(entries))
        others = references.other_files
        return read_predictions(path, references.captions, references.files, other_files=others).captions

    assert list(read("test/").values()) == list(read("").values()) == ["of 0", "of 1", "of 2"]
    with pytest.raises(BenchError):
        read("train/")


def test_references_of_single_words_are_told(tmp_path: Path) -> None:
    path = tmp_path / "references.json"
    for caption, told in ((["a", "dog"], 1), (["a dog", "one dog"], 0)):
        path.write_text(json.dumps([{"image_id": image, "caption": caption} for image in range(4)]))
        assert sum("single words" in note for note in read_references(path).notes) == told


@pytest.mark.parametrize("form", ["r.csv", "r.json", "r.parquet"])
def test_rejected_captions_are_left_out_of_every_form(form: str, tmp_path: Path) -> None:
    path = tmp_path / form
    fields = ("image_id", "caption", "is_rejected")
    rows = [(1, "a dog", False), (1, "no picture", True), (2, "a cat", False)]
    entries = [dict(zip(fields, row, strict=True)) for row in rows]
    if form.endswith(".csv"):
        path.write_text("\n".join([",".join(fields), *(",".join(map(str, row)) for row in rows)]))
    elif form.endswith(".json"):
        path.write_text(json.dumps(entries))
    else:
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.Table.from_pylist(entries), path)
    references = read_references(path)
    assert references.captions == {1: ("a dog",), 2: ("a cat",)}
    assert any("1 captions" in note for note in references.notes)


def test_sentences_without_a_text_are_told(tmp_path: Path) -> None:
    path = tmp_path / "dataset.json"
    sentences = [{"raw": "a dog"}, {"raw": None}, {"text": "one dog"}]
    path.write_text(
        json.dumps({"images": [{"imgid": 1, "filename": "1.jpg", "split": "test", "sentences": sentences}]})
    )
    assert any("2 sentences without a text" in note for note in read_references(path).notes)
