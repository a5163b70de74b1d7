"""What is read, captions in the forms that people publish, and what is said of files that are something else."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data.formats.match import MatchOptions
from harness.data.formats.predictions import check_predictions, read_caption_sets, read_predictions
from harness.data.formats.references import References, read_image_ids, read_references, sanitise_caption
from harness.utils.errors import BenchError

COCO = {
    "images": [{"id": 7}, {"id": 3}],
    "annotations": [
        {"id": 1, "image_id": 3, "caption": "a dog"},
        {"id": 2, "image_id": 7, "caption": "a cat\n"},
        {"id": 3, "image_id": 3, "caption": "one dog"},
    ],
}


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(content: object, name: str = "file.json") -> Path:
        path = tmp_path / name
        text = content if isinstance(content, str) else json.dumps(content)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return make


@pytest.mark.parametrize("name", ["captions_val.json", "captions_val.json.gz"])
def test_coco_keeps_the_order_of_the_images(write, name):
    found = read_references(write(COCO, name))
    assert found.name == "captions_val"
    assert list(found.captions.items()) == [(7, ("a cat\n",)), (3, ("a dog", "one dog"))]
    assert found.domains == {}


def test_files_of_two_folders_may_have_one_name(write):
    images = [{"cocoid": n, "filepath": part, "filename": "a.jpg", "sentences": [{"raw": part}], "split": "test"}
              for n, part in enumerate("xy")]  # fmt: skip
    files = read_references(write({"images": images})).files
    content = [{"image": f"{part}/a.jpg", "caption": part} for part in "yx"] + [{"image": "a.jpg", "caption": "either"}]
    found = read_predictions(write(content), files, files)
    assert (found.captions, sum(map(len, found.problems.values()))) == ({0: "x", 1: "y"}, 1)
    others = [{"image_id": i, "file_name": f"{i + 1}.jpg", "caption": str(i)} for i in (7, 8)]
    assert read_predictions(write(others), (7, 8, 9)).captions == {7: "7", 8: "8"}, "no file of the references"


def test_nocaps_has_domains(write):
    images = [{"id": 7, "domain": "in-domain"}, {"id": 3, "domain": "out-domain"}]
    assert read_references(write(COCO | {"images": images})).domains == {7: "in-domain", 3: "out-domain"}


def test_karpathy_gives_one_split(write):
    def image(number, split):
        return {
            "imgid": 0,
            "cocoid": number,
            "split": split,
            "sentences": [{"raw": f"a {number}"}],
            "domain": "near-domain",
        }

    path = write({"dataset": "coco", "images": [image(5, "test"), image(6, "val"), image(4, "test")]})
    assert list(read_references(path).captions) == [5, 4]
    assert read_references(path, split="val").captions == {6: ("a 6",)}
    assert read_references(path).domains == {5: "near-domain", 4: "near-domain"}
    with pytest.raises(BenchError, match="no split 'train'") as raised:
        read_references(path, split="train")
    assert "test, val" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([], "no known format"),
        ({"images": [1]}, "no known format"),
        ({"images": [{"id": 1}]}, "lists images without captions"),
        ({"images": [], "annotations": []}, "has no images"),
        ({"images": [{"id": 1}], "annotations": {}}, "not a list of objects"),
        ({"images": [{"id": 1}], "annotations": []}, r"1 image .*\(1\)"),
        ({"images": [{"id": 1}, {"id": 1}], "annotations": []}, r"1 image listed more than once \(1\)"),
        ({"images": [{"id": 1.5}], "annotations": []}, '"id"'),
        (COCO | {"annotations": [{"id": 9, "image_id": 4, "caption": "x"}]}, r"no caption or no image: 1 \(9\)"),
        (COCO | {"annotations": [{"id": 9, "image_id": 7, "caption": None}]}, r"no caption or no image: 1 \(9\)"),
        (
            {"images": [{"id": 1, "domain": "\ud800"}], "annotations": [{"id": 1, "image_id": 1, "caption": "a"}]},
            "domain",
        ),
        ("{", "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
    ],
)
def test_other_references_are_refused(write, content, says):
    with pytest.raises(BenchError, match=says):
        read_references(write(content))


def test_faulty_predictions_are_named_and_refused_or_left_out(write):
    references = read_references(
        write(
            {
                "images": [{"id": i} for i in range(30)],
                "annotations": [{"image_id": i, "caption": "x"} for i in range(30)],
            }
        )
    )
    entries = [{"image_id": i, "caption": f"caption {i}"} for i in range(18)]
    entries += [
        {"image_id": 3, "caption": "again"},
        {"image_id": "eighteen", "caption": "of no image"},
        {"image_id": True, "caption": "x"},
        {"image_id": 19, "caption": ["a", "b"]},
        {"image_id": 20, "caption": " \n"},
        {"image_id": 21},
        {"image_id": 99, "caption": "of no image"},
        "no object",
    ]
    predictions = read_predictions(write(entries))
    with pytest.raises(BenchError) as raised:
        check_predictions(predictions, references, allow_subset=False)
    message = str(raised.value)
    for part in (
        "1 image predicted more than once (3)",
        "3 images without a whole number of 64 bits or a file name as their image (entry 19, entry 20, entry 25)",
        "2 images whose caption is no text (19, 21)",
        "1 image with an empty caption (20)",
        "9 images missing (18, 22, 23, 24, 25, 26, 27, 28, 29)",
        "1 image without references (99)",
    ):
        assert part in message
    assert "--allow-subset" in (raised.value.hint or "")
    chosen, captions, notes = check_predictions(predictions, references, allow_subset=True)
    assert list(chosen) == list(captions) == [i for i in range(18) if i != 3]
    assert len(notes) == 6


def test_without_any_common_image_there_is_nothing_to_score(write):
    with pytest.raises(BenchError, match="no image has both"):
        check_predictions(
            read_predictions(write({"5": "a dog"})), read_references(write(COCO, "c.json")), allow_subset=True
        )


def test_image_lists_need_no_captions(write):
    assert read_image_ids(write({"images": [{"id": 4}, {"id": 2}]})) == [4, 2]
    assert read_image_ids(write({"images": [{"cocoid": 4, "imgid": 0}]})) == [4]
    with pytest.raises(BenchError, match="no list of objects"):
        read_image_ids(write({"images": []}))


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_any_text_becomes_one_encodable_line(text):
    clean = sanitise_caption(text)
    assert len(f"x{clean}".splitlines()) == 1
    assert "\x00" not in clean
    clean.encode()
    assert sanitise_caption(clean) == clean


def test_broken_surrogates_are_replaced_and_pairs_joined():
    assert sanitise_caption("a \ud800 b") == "a \ufffd b"
    assert sanitise_caption("a \ud83d\ude00 b") == "a \U0001f600 b"


CAPTIONS = {391895: "a man on a motorcycle", 60623: "a girl eats", 483108: "a train"}
FILES = {391895: "val2014/COCO_val2014_000000391895.jpg", 60623: "girl.jpg", 483108: "0013ea.png"}
PAIRS = list(CAPTIONS.items())


@pytest.mark.parametrize(
    "content",
    [
        [{"image_id": i, "caption": c} for i, c in PAIRS],  # COCO, nocaps, X-modaler
        [{"caption": c, "image_id": str(i), "perplexity": 0.1} for i, c in PAIRS],  # OFA
        [{"image_id": i, "caption": c, "file_path": "of another name"} for i, c in PAIRS],  # vis.json
        {str(i): c for i, c in PAIRS},  # M2, BLIP-2
        {str(i): [c] for i, c in PAIRS},  # pycocoevalcap
        {str(i): [{"caption": c}] for i, c in PAIRS},
        [{str(i): c} for i, c in PAIRS],  # LLaVA
        [{"image_name": f"COCO_val2014_{i:012d}.jpg", "captions": ["a reference"], "prediction": c} for i, c in PAIRS],
        {
            "imgblobs": [{"img_path": FILES[i], "candidate": {"text": c, "logprob": -3.2}} for i, c in PAIRS]
        },  # NeuralTalk
        {"annotations": [{"image_id": i, "id": n, "caption": c} for n, (i, c) in enumerate(PAIRS)]},
        "\n".join(json.dumps({"image": Path(FILES[i]).stem, "text": c}) for i, c in PAIRS),  # JSON lines
        [{"id": n, "file_name": FILES[i], "caption": c} for n, (i, c) in enumerate(reversed(PAIRS))],  # row numbers
    ],
)
def test_one_form_says_what_another_does(write: Write, content: object) -> None:
    found = read_predictions(write(content), CAPTIONS, FILES)
    assert found.captions == CAPTIONS
    assert not found.problems
    assert not found.by_position


@pytest.mark.parametrize(
    "content",
    [
        [{"image_id": place, "caption": c} for place, (_, c) in enumerate(PAIRS)],  # ExpansionNet v1
        [c for _, c in PAIRS],
        "\n".join(json.dumps(c) for _, c in PAIRS),
    ],
)
def test_positions_are_taken_only_where_somebody_says_so(write: Write, content: object) -> None:
    with pytest.raises(BenchError) as refused:
        read_predictions(write(content), CAPTIONS)
    assert "--by-position" in (refused.value.hint or "")
    found = read_predictions(write(content), CAPTIONS, options=MatchOptions(by_position=True))
    assert found.captions == CAPTIONS
    assert found.by_position


def test_ids_that_count_the_images_are_these_ids(write: Write) -> None:
    """Nocaps's images have the ids 0 to 4,499, in no order."""
    found = read_predictions(write([{"image_id": i, "caption": str(i)} for i in range(3)]), [2, 0, 1])
    assert found.captions == {0: "0", 1: "1", 2: "2"}
    assert not found.by_position


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "an empty list"),
        ([1, 2], "holds no captions of images"),
        ("text", "not valid JSON"),
        (3, "holds no captions of images"),
        (["a dog"], "nothing names the 3 images"),
    ],
)
def test_what_is_none_is_said_in_one_sentence(write: Write, content: object, message: str) -> None:
    with pytest.raises(BenchError, match=message):
        read_predictions(write(content), CAPTIONS)


@pytest.mark.parametrize(
    "content",
    [
        [{"image_id": i, "caption": "a reference", "prediction": c} for i, c in PAIRS],
        {str(i): {"text": "Describe it.", "response": c} for i, c in PAIRS},
        [[{"image_id": i, "answer": "a reference", "generated_text": c}] for i, c in PAIRS],
        [{"image_id": i, "caption": "", "output": c} for i, c in PAIRS],
    ],
)
def test_one_of_several_captions_is_chosen_by_the_user(write: Write, content: object) -> None:
    with pytest.raises(BenchError) as refused:
        read_predictions(write(content), CAPTIONS)
    assert "--caption-field" in (refused.value.hint or "")
    fields = ("prediction", "response", "generated_text", "output")
    [field] = [name for name in fields if f'"{name}"' in json.dumps(content)]
    chosen = read_predictions(write(content), CAPTIONS, options=MatchOptions(caption_field=field))
    assert chosen.captions == CAPTIONS


def test_references_under_two_names_are_chosen_by_the_user(tmp_path: Path) -> None:
    table, entries = tmp_path / "references.csv", tmp_path / "references.json"
    table.write_text("image,caption,text\na.jpg,a dog runs,EXIT\nb.jpg,a cat,SALE\n")
    rows = [("a.jpg", "a dog runs", "EXIT"), ("b.jpg", "a cat", "SALE")]
    entries.write_text(json.dumps([{"image": name, "caption": one, "text": other} for name, one, other in rows]))
    for path in (table, entries):
        with pytest.raises(BenchError) as refused:
            read_references(path)
        assert "--reference-field caption" in (refused.value.hint or "")
        assert read_references(path, caption_field="caption").captions == {0: ("a dog runs",), 1: ("a cat",)}
        with pytest.raises(BenchError, match=r"no such field|no column"):
            read_references(path, caption_field="words")


def test_two_people_may_write_the_same_reference(tmp_path: Path) -> None:
    path = tmp_path / "references.json"
    texts = ["a dog", "a dog", "one dog"]
    path.write_text(json.dumps([{"image_id": 7, "caption": text} for text in texts]))
    assert read_references(path).captions == {7: tuple(texts)}
    path.write_text(json.dumps({"data": [{"image_id": 7, "reference_strs": texts, "caption_id": n} for n in range(3)]}))
    assert read_references(path).captions == {7: tuple(texts)}, "TextCaps has the list with each caption"


def test_ids_with_zeros_before_them_are_these_numbers(write: Write) -> None:
    path = write({f"{image_id:06d}": ["a reference"] for image_id in CAPTIONS})
    references = read_references(path)
    assert list(references.captions) == list(CAPTIONS)
    found = read_predictions(write([{"image_id": i, "caption": c} for i, c in PAIRS]), CAPTIONS, references.files)
    assert found.captions == CAPTIONS


def test_several_captions_of_an_image_are_a_set(write: Write) -> None:
    assert read_caption_sets(write({"7": ["a dog", "one dog"]})) == {7: ["a dog", "one dog"]}
    assert read_caption_sets(write([{"image_id": 7, "caption": text} for text in ("a", "b")])) == {7: ["a", "b"]}


def test_sets_are_read_by_the_fields_that_are_chosen(write: Write) -> None:
    rows = [
        {"a": one, "b": other, "caption": "a reference", "output": text}
        for one, other, text in [(7, 8, "a dog"), (8, 7, "a cat"), (7, 8, "one dog"), (8, 7, "one cat")]
    ]
    chosen = MatchOptions(id_field="a", caption_field="output")
    sets = read_caption_sets(write(rows), [7, 8], options=chosen)
    assert sets == {7: ["a dog", "one dog"], 8: ["a cat", "one cat"]}
    keyed = read_caption_sets(write({"7": ["a dog"], "8": ["a cat"]}), [7, 8], options=chosen)
    assert keyed == {7: ["a dog"], 8: ["a cat"]}, "the fields are of another file"


def test_ids_with_a_constant_offset_are_told(write: Write) -> None:
    references = References("nocaps", dict.fromkeys(CAPTIONS, ("a reference",)))
    raised = read_predictions(write({str(image_id + 581_922): caption for image_id, caption in PAIRS}), CAPTIONS)
    with pytest.raises(BenchError, match="581,922 higher") as refused:
        check_predictions(raised, references, allow_subset=False)
    assert "bench data nocaps" in (refused.value.hint or "")
