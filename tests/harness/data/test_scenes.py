"""The embedded data set: the same bytes everywhere, learnable, and what it says is what it shows."""

import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.config.experiment import PRESET_OF_SCENES
from harness.data.dataset import Dataset
from harness.data.graphs import SHAPE_OF
from harness.data.images import load_image
from harness.data.karpathy import read_karpathy
from harness.data.known_sizes import KNOWN_SIZES
from harness.data.opening import open_dataset
from harness.data.scenes.dataset import SCENES, ScenesConfig, prepare_scenes
from harness.data.scenes.drawing import DETAILS, OBJECT_COLOURS, SHAPES, Square, encode_png
from harness.data.scenes.language import SHORTEST, describe
from harness.data.scenes.layout import DOMAINS, SEEN, UNSEEN, Chance, Scene, compose
from harness.data.vocabulary import Vocabulary, tokenize
from harness.metrics.cider import mean_cider_d
from harness.utils.errors import BenchError

TINY = ScenesConfig(train=12, val=3, test=4, nocaps_per_domain=3)


def named(captions: tuple[str, ...], shapes: tuple[str, ...]) -> bool:
    return any(SHAPE_OF.get(word) in shapes for caption in captions for word in tokenize(caption))


def scenes(count: int, domain: str = "in-domain") -> list[Scene]:
    return [compose(Chance(f"{domain} {number}"), domain) for number in range(count)]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_scenes(tmp_path_factory.mktemp("cache"), TINY)


@pytest.fixture(scope="module")
def tiny(drawn: Path) -> Dataset:
    return read_karpathy(drawn)


def test_the_bytes_are_those_of_every_other_machine(tiny: Dataset) -> None:
    """When this fails after an intended change of pictures or captions, raise `scenes.VERSION` too."""
    assert tiny.fingerprint[:16] == "4277d62c888fc1d5"


def test_an_existing_folder_is_taken_as_it_is(drawn: Path) -> None:
    before = (drawn / "dataset_scenes.json").stat().st_mtime_ns
    assert prepare_scenes(drawn.parent, TINY) == drawn
    assert (drawn / "dataset_scenes.json").stat().st_mtime_ns == before


def test_of_several_who_want_it_at_once_one_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn_pictures = []
    monkeypatch.setattr(
        "harness.data.scenes.dataset.encode_png", lambda *given: drawn_pictures.append(given) or encode_png(*given)
    )
    with ThreadPoolExecutor(4) as threads:
        folders = set(threads.map(lambda _: prepare_scenes(tmp_path, TINY), range(4)))
    assert len(folders) == 1
    assert len(drawn_pictures) == 28


def test_after_an_interruption_it_is_drawn_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        pictures = iter([b"picture"] * 9)
        patched.setattr("harness.data.scenes.dataset.encode_png", lambda *_: next(pictures))
        with pytest.raises(StopIteration):
            prepare_scenes(tmp_path, TINY)
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith(".")]
    folder = prepare_scenes(tmp_path, TINY)
    assert len(list((folder / "images").iterdir())) == 28
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == [folder]


def test_a_place_that_cannot_be_written_is_an_error_to_read(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BenchError, match="cannot be written"):
        prepare_scenes(tmp_path / "file", TINY)


def test_opening_gives_splits_domains_and_differing_captions(tiny: Dataset) -> None:
    assert {name: len(samples) for name, samples in tiny.splits.items()} == {
        "train": 12,
        "val": 3,
        "test": 4,
        "nocaps": 9,
    }
    assert Counter(sample.domain for sample in tiny.split("nocaps")) == dict.fromkeys(DOMAINS, 3)
    assert {sample.domain for sample in tiny.split("train")} == {None}
    assert [sample.image_id for sample in tiny.samples] == list(range(28))
    assert not tiny.faults
    for sample in tiny.samples:
        assert len(set(sample.captions)) == 5
        assert all(6 <= len(tokenize(caption)) <= 16 for caption in sample.captions)
        assert load_image(tiny.path(sample)).size == (96, 96)


def test_the_embedded_name_opens_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    more = replace(TINY, train=TINY.train + 1)
    monkeypatch.setitem(SCENES, "scenes", TINY)
    monkeypatch.setitem(SCENES, "scenes-6k", more)
    assert SCENES.keys() == PRESET_OF_SCENES.keys() <= KNOWN_SIZES.keys()
    small, large = (open_dataset(name, cache_dir=tmp_path) for name in SCENES)
    assert (small.name, large.name) == ("scenes", "scenes-6k")
    assert len(large.splits["train"]) == TINY.train + 1
    for name in ("val", "test", "nocaps"):  # the same pictures, of other ids
        assert [each.captions for each in large.splits[name]] == [each.captions for each in small.splits[name]]
    with pytest.raises(BenchError, match="--images"):
        open_dataset("scenes", cache_dir=tmp_path, images=tmp_path)


def test_boxes_hold_what_is_drawn(tiny: Dataset) -> None:
    """Within its box an object's pixels differ from the picture's edge colours; boxes lie in the picture."""
    for sample in tiny.samples:
        assert 1 <= len(sample.boxes) <= 3
        pixels = np.asarray(load_image(tiny.path(sample))).astype(int)
        for x1, y1, x2, y2 in sample.boxes:
            assert 0 <= x1 < x2 <= 96
            assert 0 <= y1 < y2 <= 96
            inside = pixels[int(y1) : int(y2), int(x1) : int(x2)].reshape(-1, 3)
            assert (np.abs(inside - np.median(pixels[0], axis=0)).max(axis=1) > 45).mean() > 0.1


@pytest.mark.parametrize("shape", sorted(SHAPES))
@pytest.mark.parametrize("size", [18, 20, 25, 34, 42, 45])
def test_shapes_fill_their_square_and_stay_in_it(shape: str, size: int) -> None:
    steps = 2 * np.arange(-3, size + 3) - (size - 1)
    square = Square(steps[None, :], steps[:, None], size)
    painted = SHAPES[shape](square) | DETAILS.get(shape, SHAPES[shape])(square)
    assert not painted[[0, 1, 2, -1, -2, -3]].any()
    assert not painted[:, [0, 1, 2, -1, -2, -3]].any()
    assert painted.any(axis=0).sum() > 0.7 * size
    assert painted.any(axis=1).sum() > 0.5 * size


def test_relations_are_true() -> None:
    found = Counter()
    for scene in scenes(600):
        if scene.arrangement not in ("pair", "trio"):
            continue
        found[scene.relation] += 1
        a, b = scene.items[:2]
        assert a.colour != b.colour
        if scene.relation == "left":
            assert a.x + a.size <= b.x
        elif scene.relation == "above":
            assert a.y + a.size <= b.y
        elif scene.relation == "on":
            assert a.y + a.size == b.y
            assert max(a.x, b.x) < min(a.x + a.size, b.x + b.size)
        else:
            assert b.x < a.x
            assert b.y < a.y
            assert a.x + a.size < b.x + b.size
            assert a.y + a.size < b.y + b.size
        for c in scene.items[2:]:
            edges = {
                "left": c.x + c.size <= min(a.x, b.x),
                "right": c.x >= max(a.x + a.size, b.x + b.size),
                "above": c.y + c.size <= min(a.y, b.y),
                "below": c.y >= max(a.y + a.size, b.y + b.size),
            }
            assert edges[scene.third or ""]
    assert min(found.values()) > 50


def test_domains_hold_what_they_promise() -> None:
    for domain in DOMAINS:
        for scene in scenes(200, domain):
            novel = {item.shape in UNSEEN for item in scene.items}
            assert novel == {"in-domain": {False}, "near-domain": {False, True}, "out-domain": {True}}[domain]


def test_training_never_names_a_novel_object(tiny: Dataset) -> None:
    for sample in tiny.samples:
        assert named(sample.captions, UNSEEN) == (sample.domain in ("near-domain", "out-domain"))
    assert not set(SEEN) & set(UNSEEN)
    assert {*SEEN, *UNSEEN} == set(SHAPES)


def test_captions_name_the_colours_that_are_there() -> None:
    for number, scene in enumerate(scenes(100)):
        captions = describe(Chance(f"words {number}"), scene, 5)
        there = {item.colour for item in scene.items} | {"violet"}
        said = {word for caption in captions for word in tokenize(caption)} & {*OBJECT_COLOURS}
        assert said <= there | {scene.background}
        assert all(re.fullmatch(r"[A-Z][a-z ,]+\.", caption) for caption in captions)
        assert not any(re.search(r"\ba [aeiou]|\ban [^aeiou]", caption.lower()) for caption in captions)
        assert min(len(tokenize(caption)) for caption in captions) >= SHORTEST


def test_language_is_not_trivial_and_humans_beat_blind() -> None:
    """CIDEr-D in x100: one reference against the four others, and the best of many constant captions."""
    told = [describe(Chance(f"words {number}"), scene, 5) for number, scene in enumerate(scenes(400))]
    assert 90 <= len(Vocabulary.build((caption for captions in told for caption in captions), 2).words) <= 120
    tokenized = {number: [" ".join(tokenize(text)) for text in captions] for number, captions in enumerate(told[:150])}
    held_out = {number: captions[0] for number, captions in tokenized.items()}
    human = mean_cider_d({number: captions[1:] for number, captions in tokenized.items()}, held_out)
    constants = [" ".join(tokenize(captions[0])) for captions in told[150:190]]
    blind = max(mean_cider_d(tokenized, dict.fromkeys(tokenized, caption)) for caption in constants)
    assert 150 < 100 * human < 400
    assert 100 * blind < 60
