"""Which image a row is of: any field, any order, file names in many forms; positions only where somebody says so."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data.formats.match import KEY, ImageNames, MatchOptions, match_rows
from harness.data.formats.predictions import read_predictions
from harness.data.formats.references import References, read_references
from harness.metrics.evaluator import EvaluationSettings, Evaluator
from harness.utils.errors import BenchError

IDS = [391, 77, 5012, 12, 640]
FILES = {image_id: f"val2014/COCO_val2014_{image_id:012d}.jpg" for image_id in IDS}
NAMES = ImageNames(IDS, FILES)
PATH = Path("captions.json")
SENTENCES = ["a goat on a wall", "two girls fly a kite", "a red bus", "a man fixing a bicycle", "three ducks on a pond"]
FIELDS = ("question_id", "image_id", "id", "img", "Bild", "imgid", "sample", "key")


def ids_of(rows: list[dict[str, Any]], *, several: bool = False, **options: Any) -> list[int | None]:
    return match_rows(rows, NAMES, PATH, MatchOptions(**options), several=several).ids


@pytest.mark.parametrize(
    "name",
    [
        lambda image_id: image_id,
        float,
        str,
        lambda image_id: f"{image_id:012d}",
        lambda image_id: FILES[image_id],
        lambda image_id: f"COCO_val2014_{image_id:012d}",
        lambda image_id: f"./{FILES[image_id]}",
        lambda image_id: f"/data/val2014/COCO_val2014_{image_id:012d}.png",
        lambda image_id: rf"D:\data\COCO_val2014_{image_id:012d}.jpg",
    ],
)
@pytest.mark.parametrize("field", ["image_id", "question_id", "Bild", KEY])
def test_a_field_whose_values_name_images_is_the_id(name: Any, field: str) -> None:
    rows = [{field: name(image_id), "score": 0.5} for image_id in reversed(IDS)]
    assert ids_of(rows) == IDS[::-1]


def test_file_names_go_before_numbers() -> None:
    rows = [{"image_id": other, "image": FILES[image_id]} for image_id, other in zip(IDS, IDS[::-1], strict=True)]
    assert ids_of(rows) == IDS


@pytest.mark.parametrize("field", ["cocoid", "image_id"])
def test_known_ids_decide_between_numbers(field: str) -> None:
    rows = [{"imgid": other, field: image_id} for image_id, other in zip(IDS, IDS[::-1], strict=True)]
    assert ids_of(rows) == IDS


def test_numbers_that_disagree_are_refused_and_an_option_chooses() -> None:
    rows = [{"a": image_id, "b": other} for image_id, other in zip(IDS, IDS[::-1], strict=True)]
    with pytest.raises(BenchError) as refused:
        ids_of(rows)
    assert "--id-field a" in (refused.value.hint or "")
    assert ids_of(rows, id_field="a") == IDS
    assert ids_of(rows, id_field="b") == IDS[::-1]
    with pytest.raises(BenchError, match="no row has such a field"):
        ids_of(rows, id_field="c")


@pytest.mark.parametrize("first", [0, 1])
def test_numbers_of_rows_are_positions_only_where_somebody_says_so(first: int) -> None:
    order = [2, 0, 4, 1, 3]
    rows = [{"image_id": place + first} for place in order]
    with pytest.raises(BenchError) as refused:
        ids_of(rows)
    assert "--by-position" in (refused.value.hint or "")
    assert ids_of(rows, by_position=True) == [IDS[place] for place in order]


def test_positions_ignore_no_names_of_other_images() -> None:
    rows = [{"image": f"other_{place}.jpg"} for place in range(len(IDS))]
    for by_position in (False, True):
        with pytest.raises(BenchError) as refused:
            ids_of(rows, by_position=by_position)
        assert "--by-position" not in (refused.value.hint or "")
    assert ids_of([{"id": f"answer {place}"} for place in range(len(IDS))], by_position=True) == IDS


def test_numbers_of_rows_that_happen_to_be_some_ids_are_no_ids() -> None:
    names = ImageNames([2, 7, 9])
    with pytest.raises(BenchError, match="nothing names"):
        match_rows([{"id": place} for place in range(3)], names, PATH, MatchOptions())
    full = match_rows([{"id": place} for place in range(3)], ImageNames([2, 0, 1]), PATH, MatchOptions())
    assert full.ids == [0, 1, 2], "these are"


def match(rows: list[dict[str, Any]], names: ImageNames, **options: Any) -> list[int | None]:
    return match_rows(rows, names, PATH, MatchOptions(**options)).ids


@pytest.mark.parametrize("form", [int, str, float])
@pytest.mark.parametrize("options", [{}, {"id_field": "image_id"}])
def test_a_bare_number_is_an_id_before_it_is_the_stem_of_another_file(form: Any, options: dict[str, Any]) -> None:
    names = ImageNames(range(4), {image_id: f"{image_id + 1}.jpg" for image_id in range(4)})
    assert match([{"image_id": form(image_id)} for image_id in (2, 0, 3, 1)], names, **options) == [2, 0, 3, 1]
    assert match([{"image_id": form(stem)} for stem in (3, 1, 4, 2)], names, **options) == [2, 0, 3, 1], "stems"
    by_file = [{"image_id": f"{image_id + 1}.jpg"} for image_id in (2, 0, 3, 1)]
    assert match(by_file, names, **options) == [2, 0, 3, 1]


def test_a_row_counter_that_equals_stems_gives_way_to_the_ids() -> None:
    names = ImageNames([40, 30, 20], {40: "1.jpg", 30: "2.jpg", 20: "3.jpg"})
    rows = [{"index": index, "image_id": image_id} for index, image_id in enumerate((20, 40, 30), start=1)]
    assert match(rows, names) == [20, 40, 30]


def test_zeros_before_a_number_do_not_matter() -> None:
    names = ImageNames([5, 6], {5: "val/000391.jpg", 6: "val/000077.jpg"})
    assert match([{"image_id": 77}, {"image_id": 391}], names) == [6, 5]
    assert match([{"image_id": "0077"}, {"image_id": "00391"}], names) == [6, 5]


def test_a_file_that_is_not_wanted_is_not_taken_for_an_id() -> None:
    names = ImageNames([5, 6, 7], {5: "a.jpg", 6: "b.jpg", 7: "COCO_val2014_000000000009.jpg"})
    rows = [{"image": "a.jpg"}, {"image": "COCO_val2014_000000000006.jpg"}]
    assert match(rows, names) == [5, None]
    assert match([*rows, {"image": "COCO_val2014_000000000010.jpg"}], names) == [5, None, 10]


@pytest.mark.parametrize("order", [(2, 0, 1), (1, 2), (0,)])
def test_numbers_given_to_text_ids_are_matched_by_no_file(order: tuple[int, ...]) -> None:
    names = ImageNames(range(3), labels=dict(enumerate(["sky", "sea", "sand"])))
    with pytest.raises(BenchError, match="nothing names"):
        match([{"image_id": number} for number in order], names)
    assert match([{"image_id": label} for label in ("sand", "sky", "sea")], names) == [2, 0, 1]
    assert match([{"image_id": label} for label in ("sand", 1, "sea")], names) == [2, None, 1]


def test_a_measure_with_the_numbers_of_some_images_is_no_id() -> None:
    rows = [{"length": length} for length in (12, 77, 12, 391, 640)]
    with pytest.raises(BenchError, match='"length" \\(12, 77, 391\\)'):
        ids_of(rows)


def test_several_rows_of_an_image_are_as_many_of_each() -> None:
    rows = [{"sample": image_id} for image_id in (*IDS, *IDS[::-1])]
    assert ids_of(rows, several=True) == [*IDS, *IDS[::-1]]
    with pytest.raises(BenchError):
        ids_of(rows[:-1], several=True)


def test_position_needs_one_row_an_image() -> None:
    with pytest.raises(BenchError, match="4 captions, for 5 images"):
        ids_of([{}] * 4, by_position=True)
    assert ids_of([{}] * 5, by_position=True) == IDS


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> References:
    path = tmp_path_factory.mktemp("references") / "references.json"
    images = [{"id": image_id, "file_name": Path(FILES[image_id]).name} for image_id in IDS]
    annotations = [
        {"id": 10 * n + k, "image_id": image_id, "caption": f"{text} {word}"}
        for n, (image_id, text) in enumerate(zip(IDS, SENTENCES, strict=True))
        for k, word in enumerate(("today", "outside"))
    ]
    path.write_text(json.dumps({"images": images, "annotations": annotations}))
    return read_references(path)


@pytest.fixture(scope="module")
def expected(references: References) -> float:
    return cider(references, dict(zip(IDS, SENTENCES, strict=True)))


def cider(references: References, captions: dict[int, str]) -> float:
    with Evaluator(settings=EvaluationSettings(meteor=False)) as evaluator:
        value = evaluator.evaluate(references.captions, captions).scores["overall"]["CIDEr-D"].value
    assert value is not None
    return value


@given(
    order=st.permutations(range(len(IDS))),
    field=st.sampled_from(FIELDS),
    form=st.sampled_from(["number", "text", "file", "stem"]),
    beside=st.dictionaries(st.sampled_from(FIELDS), st.sampled_from(["rows", "shuffled", "words"]), max_size=2),
)
def test_any_order_under_any_field_gives_the_same_scores_or_a_refusal(
    references: References,
    expected: float,
    tmp_path_factory: pytest.TempPathFactory,
    order: list[int],
    field: str,
    form: str,
    beside: dict[str, str],
) -> None:
    names = {
        "number": lambda image_id: image_id,
        "text": str,
        "file": lambda image_id: Path(FILES[image_id]).name,
        "stem": lambda image_id: Path(FILES[image_id]).stem,
    }
    entries = []
    for row, place in enumerate(order):
        others = {"rows": row, "shuffled": IDS[(place * 2) % len(IDS)], "words": f"no image {place}"}
        entry: dict[str, Any] = {name: others[kind] for name, kind in beside.items()}
        entries.append(entry | {field: names[form](IDS[place]), "caption": SENTENCES[place]})
    path = tmp_path_factory.getbasetemp() / "predictions.json"
    path.write_text(json.dumps(entries))
    decided = form in {"file", "stem"} or "shuffled" not in beside.values()
    try:
        read = read_predictions(path, references.captions, references.files)
    except BenchError:
        assert not (decided and field not in beside), "only fields that contradict each other are refused"
        return
    if decided:
        assert not read.problems
        assert abs(cider(references, read.captions) - expected) < 1e-12
