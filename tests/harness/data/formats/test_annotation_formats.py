"""Each form of annotations is told by its content alone, and says the same as every other."""

import bz2
import gzip
import json
import lzma
import pickle
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data.formats.content import read_content
from harness.data.formats.predictions import check_predictions, read_predictions
from harness.data.formats.references import read_references
from harness.data.formats.registry import ANNOTATION_FORMATS, find_format, read_annotations, single_file
from harness.utils.errors import BenchError
from tests.harness.conftest import bench_ok
from tests.harness.data.formats.examples import CAPTIONS, EXAMPLES

NO_TEXT = ("imagefolder", "pairs", "parquet", "datasets-folder")
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16")


def test_every_format_has_an_example() -> None:
    assert EXAMPLES.keys() == {one.name for one in ANNOTATION_FORMATS}


@pytest.mark.parametrize("name", EXAMPLES)
def test_one_format_is_sure_of_a_file(name: str, tmp_path: Path) -> None:
    content = read_content(single_file(EXAMPLES[name](tmp_path)))
    assert [one.name for one in ANNOTATION_FORMATS if one.sniff(content)] == [name]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_format_says_the_same(name: str, tmp_path: Path) -> None:
    annotations = read_annotations(EXAMPLES[name](tmp_path))
    assert not annotations.problems
    captions = {
        image.picture.removeprefix("https://example.org/"): image.captions for image in annotations.images.values()
    }
    assert captions == CAPTIONS
    assert find_format(read_content(single_file(annotations.path)), name).name == name


@pytest.mark.parametrize("name", EXAMPLES)
def test_references_of_every_format_score_captions_of_any_order(name: str, tmp_path: Path) -> None:
    references = read_references(EXAMPLES[name](tmp_path))
    by_file = {file: references.captions[image_id] for image_id, file in references.files.items()}
    prefix = "https://example.org/" if name == "conceptual" else ""
    assert by_file == {prefix + file: tuple(texts) for file, texts in CAPTIONS.items()}
    rows = [{"image": prefix + file, "caption": texts[0]} for file, texts in reversed(CAPTIONS.items())]
    path = tmp_path / "predictions.json"
    path.write_text(json.dumps(rows))
    found = read_predictions(path, references.captions, references.files, labels=references.labels)
    _, captions, notes = check_predictions(found, references, allow_subset=False)
    assert not notes
    assert {references.files[image_id]: text for image_id, text in captions.items()} == {
        prefix + file: texts[0] for file, texts in CAPTIONS.items()
    }


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in NO_TEXT])
@given(encoding=st.sampled_from(ENCODINGS), ends=st.sampled_from(["\n", "\r\n"]), packed=st.booleans())
def test_encodings_and_line_ends_change_nothing(
    name: str, tmp_path_factory: pytest.TempPathFactory, encoding: str, ends: str, packed: bool
) -> None:
    path = EXAMPLES[name](tmp_path_factory.mktemp("plain"))
    expected = read_references(path).captions
    raw = path.read_text(encoding="utf-8").replace("\n", ends).encode(encoding)
    path.write_bytes(gzip.compress(raw) if packed else raw)
    assert read_references(path).captions == expected


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ({"first": {"caption_of": 7}}, "first"),
        ([{"picture": "a.jpg", "words": "a dog"}], "picture"),
        ([1, 2], "[1, 2]"),
    ],
)
def test_an_unknown_file_is_answered_by_what_is_in_it(content: object, shown: str, tmp_path: Path) -> None:
    path = tmp_path / "strange.json"
    path.write_text(json.dumps(content))
    with pytest.raises(BenchError) as refused:
        read_references(path)
    assert shown in str(refused.value)


def test_the_user_can_name_the_format(tmp_path: Path) -> None:
    path = EXAMPLES["kaggle"](tmp_path)
    assert len(read_annotations(path, format_name="table").images) == len(CAPTIONS)
    with pytest.raises(BenchError) as refused:
        read_annotations(path, format_name="kagle")
    assert "kaggle" in (refused.value.hint or "")


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_wrong_format_is_refused_or_says_the_same(name: str, tmp_path: Path) -> None:
    path = EXAMPLES[name](tmp_path)
    right = sorted(text for texts in CAPTIONS.values() for text in texts)
    for other in ANNOTATION_FORMATS:
        try:
            annotations = read_annotations(path, format_name=other.name)
        except BenchError:
            continue
        captions = [text for image in annotations.images.values() for text in image.captions]
        assert annotations.problems or sorted(captions) == right, other.name


def test_line_ends_of_unicode_are_within_a_caption(tmp_path: Path) -> None:
    text = "a dog,\u2028a cat, a bird"
    (tmp_path / "captions.csv").write_text(f'image,caption,split\na.jpg,"{text}",test\n', encoding="utf-8")
    (tmp_path / "a.token").write_text(f"a.jpg#0\t{text}\n", encoding="utf-8")
    for file in ("captions.csv", "a.token"):
        assert read_references(tmp_path / file).captions == {0: (text,)}


def test_formats_are_listed_and_annotations_open_as_references(tmp_path: Path) -> None:
    listed = bench_ok("data", "formats").output
    assert all(one.name in listed for one in ANNOTATION_FORMATS)
    path = EXAMPLES["kaggle"](tmp_path)
    out = tmp_path / "predictions.json"
    out.write_text(json.dumps({name: texts[0] for name, texts in CAPTIONS.items()}))
    bench_ok("run", "--data", path, "--models", f"captions:{out}", "--workspace", tmp_path / "workspace")


@pytest.mark.parametrize(
    "headings",
    [
        "image,caption,caption,caption",
        "image,caption,caption.1,caption.2",
        "image,caption,caption_2,caption_3",
        "image,Caption 1,Caption 2,Caption 3",
        "image,text,text_2,text_3",
        "image,ref_0,ref_1,ref_2",
    ],
)
def test_every_column_of_captions_is_read(headings: str, tmp_path: Path) -> None:
    path = tmp_path / "references.csv"
    path.write_text(f"{headings}\na.jpg,a dog,one dog,the dog\nb.jpg,a cat,one cat,\n")
    assert list(read_references(path).captions.values()) == [("a dog", "one dog", "the dog"), ("a cat", "one cat")]


def test_a_first_column_that_repeats_a_numbered_one_is_no_further_caption(tmp_path: Path) -> None:
    path = tmp_path / "references.csv"
    path.write_text("image,caption,caption_0,caption_1\na.jpg,a dog,a dog,one dog\nb.jpg,a cat,a cat,one cat\n")
    assert list(read_references(path).captions.values()) == [("a dog", "one dog"), ("a cat", "one cat")]


def test_captions_in_several_fields_of_an_object_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "references.json"
    path.write_text(json.dumps([{"image": "a.jpg", "caption": "a dog", "caption_2": "one dog"}]))
    with pytest.raises(BenchError, match="several fields: caption, caption_2"):
        read_references(path)
    assert read_references(path, caption_field="caption").captions == {0: ("a dog",)}


def test_keys_that_count_objects_are_no_images(tmp_path: Path) -> None:
    path = tmp_path / "by_index.json"
    rows = [("b.jpg", "a cat"), ("a.jpg", "a dog"), ("a.jpg", "one dog")]
    by_index = {str(n): {"image": image, "caption": text, "split": "test"} for n, (image, text) in enumerate(rows)}
    path.write_text(json.dumps(by_index))
    references = read_references(path, split="test")
    assert references.labels == {0: "b.jpg", 1: "a.jpg"}
    assert references.captions == {0: ("a cat",), 1: ("a dog", "one dog")}


def test_the_split_of_an_object_by_image_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "by_image.json"
    path.write_text(
        json.dumps({"7": {"caption": "a cat", "split": "train"}, "9": {"caption": "a dog", "split": "test"}})
    )
    assert read_references(path).captions == {9: ("a dog",)}


def test_rejected_captions_of_a_list_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "flat.json"
    captions = [("a dog", False), ("quality issues", True), ("one dog", False)]
    path.write_text(json.dumps([{"image_id": 1, "caption": text, "is_rejected": bad} for text, bad in captions]))
    references = read_references(path)
    assert references.captions == {1: ("a dog", "one dog")}
    assert "1 captions that are marked" in references.notes[0]


def test_lists_by_split_need_no_pictures(tmp_path: Path) -> None:
    path = tmp_path / "splits.json"
    path.write_text(json.dumps({"test": [{"image_id": 7, "caption": text} for text in ("a dog", "one dog")]}))
    assert read_references(path).captions == {7: ("a dog", "one dog")}


def test_the_metadata_that_is_given_is_read(tmp_path: Path) -> None:
    (tmp_path / "metadata.jsonl").write_text(json.dumps({"file_name": "a.jpg", "caption": "an old caption"}))
    path = tmp_path / "metadata.csv"
    path.write_text("file_name,caption\na.jpg,a dog\n")
    assert read_references(path).captions == {0: ("a dog",)}


def test_a_file_of_karpathys_form_without_splits_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "dataset.json"
    images = [{"imgid": n, "filename": f"{n}.jpg", "sentences": ["a dog", {"raw": "one dog"}]} for n in range(2)]
    path.write_text(json.dumps({"images": images}))
    assert read_references(path).captions == dict.fromkeys(range(2), ("a dog", "one dog"))


def test_hints_on_references_name_no_option_of_a_conversion(tmp_path: Path) -> None:
    path = tmp_path / "references.csv"
    path.write_text("photo,caption\na.jpg,a dog\n")
    with pytest.raises(BenchError) as refused:
        read_references(path)
    assert refused.value.hint == "call the column file or image_id in the first line"
    path.write_text("image,Beschreibung\na.jpg,ein Hund\n")
    with pytest.raises(BenchError) as refused:
        read_references(path)
    assert "--reference-field Beschreibung" in (refused.value.hint or "")
    path = tmp_path / "metadata.jsonl"
    path.write_text(json.dumps({"image": "a.jpg", "conversations": [{"from": "gpt", "value": "a dog"}]}) + "\n{}")
    with pytest.raises(BenchError) as refused:
        read_references(path)
    assert "--reference-format imagefolder or llava" in (refused.value.hint or "")


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_a_line_of_names_is_proposed_in_the_order_of_the_columns(delimiter: str, tmp_path: Path) -> None:
    path = tmp_path / "references.csv"
    rows = [("a.jpg", "a dog"), ("b.jpg", "a cat")]
    path.write_text("".join(f"{name}{delimiter}{text}\n" for name, text in rows))
    with pytest.raises(BenchError) as refused:
        read_references(path)
    command = (refused.value.hint or "").removeprefix("put one before it: ")
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    references = read_references(tmp_path / "named.csv")
    assert references.labels == {0: "a.jpg", 1: "b.jpg"}
    assert references.captions == {0: ("a dog",), 1: ("a cat",)}


def test_a_file_of_bytes_is_called_what_it_is(tmp_path: Path) -> None:
    for raw, kind in ((pickle.dumps([1]), "a pickle"), (bz2.compress(b"[]"), "bzip2"), (lzma.compress(b"[]"), "xz")):
        path = tmp_path / "captions.bin"
        path.write_bytes(raw)
        for read in (read_references, read_predictions):
            with pytest.raises(BenchError, match=kind):
                read(path)
