"""Each form of annotations is told by its content alone, and says the same as every other."""

import gzip
import json
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
