"""Captions in the forms that people publish: one is the same captions as the other, whatever names the images."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.data.formats import References
from harness.data.predictions import check_predictions, read_caption_sets, read_predictions
from harness.utils.errors import BenchError

CAPTIONS = {391895: "a man on a motorcycle", 60623: "a girl eats", 483108: "a train"}
FILES = {391895: "val2014/COCO_val2014_000000391895.jpg", 60623: "girl.jpg", 483108: "0013ea.png"}
PAIRS = list(CAPTIONS.items())
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def make(content: object) -> Path:
        path = tmp_path / "captions.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return make


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
    ],
)
def test_one_form_says_what_another_does(write: Write, content: object) -> None:
    found = read_predictions(write(content), CAPTIONS, FILES)
    assert found.captions == CAPTIONS
    assert not found.problems
    assert not found.by_place


@pytest.mark.parametrize(
    "content",
    [
        [{"image_id": place, "caption": c} for place, (_, c) in enumerate(PAIRS)],  # ExpansionNet v1
        [c for _, c in PAIRS],
        "\n".join(json.dumps(c) for _, c in PAIRS),
    ],
)
def test_places_in_the_list_are_found_and_said(write: Write, content: object) -> None:
    found = read_predictions(write(content), CAPTIONS)
    assert found.captions == CAPTIONS
    assert found.by_place


def test_ids_that_count_the_images_are_these_ids(write: Write) -> None:
    """Nocaps's images have the ids 0 to 4,499, in no order."""
    found = read_predictions(write([{"image_id": i, "caption": str(i)} for i in range(3)]), [2, 0, 1])
    assert found.captions == {0: "0", 1: "1", 2: "2"}
    assert not found.by_place


def test_gzip_is_found_by_content(tmp_path: Path) -> None:
    path = tmp_path / "captions"
    path.write_bytes(gzip.compress(json.dumps({"7": "a dog"}).encode()))
    assert read_predictions(path, [7]).captions == {7: "a dog"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "an empty list"),
        ([1, 2], "holds no captions of images"),
        ("text", "not valid JSON"),
        (3, "holds no captions of images"),
        (["a dog"], "1 captions that name no image, for 3 images"),
    ],
)
def test_what_is_none_is_said_in_one_sentence(write: Write, content: object, message: str) -> None:
    with pytest.raises(BenchError, match=message):
        read_predictions(write(content), CAPTIONS)


def test_faults_are_counted(write: Write) -> None:
    found = read_predictions(
        write([{"image_id": 1, "caption": "a"}] * 2 + [{"image_id": 2, "caption": ["a", "b"]}, {"image_id": "dog.jpg"}])
    )
    assert list(map(len, found.problems.values())) == [1, 1, 1]
    assert not found.captions


def test_several_captions_of_an_image_are_a_set(write: Write) -> None:
    assert read_caption_sets(write({"7": ["a dog", "one dog"]})) == {7: ["a dog", "one dog"]}
    assert read_caption_sets(write([{"image_id": 7, "caption": text} for text in ("a", "b")])) == {7: ["a", "b"]}


def test_ids_with_a_constant_offset_are_told(write: Write) -> None:
    references = References("nocaps", dict.fromkeys(CAPTIONS, ("a reference",)))
    raised = read_predictions(write({str(image_id + 581_922): caption for image_id, caption in PAIRS}), CAPTIONS)
    with pytest.raises(BenchError, match="581,922 higher") as refused:
        check_predictions(raised, references, allow_subset=False)
    assert "bench data nocaps" in (refused.value.hint or "")
