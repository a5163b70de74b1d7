"""Which boxes and features are sound, and which regions are kept."""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from harness.config.features import RegionConfig, region_config
from harness.data.dataset import Dataset, Sample
from harness.data.regions.regions import NO_SIZE, BadRegions, RawRegions, normalised, read_regions
from harness.utils.errors import BenchError
from tests.harness.data.regions.conftest import sound_regions

Make = Callable[..., Dataset]


class Told:
    """A source that tells what it is given."""

    name, fingerprint, boxes_only = "told", "0", False

    def __init__(self, images: dict[int, RawRegions | str]) -> None:
        self._images = images

    def read(self, image_ids: Sequence[int]) -> Iterator[tuple[int, RawRegions | str]]:
        return ((image_id, self._images[image_id]) for image_id in image_ids if image_id in self._images)


def test_boxes_become_fractions_of_the_image() -> None:
    found = normalised(np.array([[0, 0, 40, 30], [10, 15, 20, 30]], np.float32), (40, 30))
    assert found.dtype == np.float32
    assert found.tolist() == [[0, 0, 1, 1], [0.25, 0.5, 0.5, 1]]
    assert normalised(np.zeros((0, 4)), (40, 30)).shape == (0, 4)


def test_rounding_is_clipped() -> None:
    assert normalised(np.array([[-0.9, -1, 41, 30.5]]), (40, 30)).tolist() == [[0, 0, 1, 1]]


@pytest.mark.parametrize(
    ("box", "complaint"),
    [
        ((5, 5, np.nan, 9), "box 1 (5, 5, nan, 9) is not finite"),
        ((5, 5, np.inf, 9), "is not finite"),
        ((9, 5, 5, 9), "is inverted"),
        ((5, 9, 9, 5), "is inverted"),
        ((5, 5, 5, 9), "has no area"),
        ((5, 5, 9, 5), "has no area"),
        ((40, 5, 41, 9), "has no area"),
        ((-1.1, 5, 9, 9), "lies outside its image of 40 x 30 pixels"),
        ((5, 5, 9, 31.1), "lies outside its image of 40 x 30 pixels"),
    ],
)
def test_unsound_boxes_are_named(box: tuple[float, ...], complaint: str) -> None:
    with pytest.raises(BadRegions, match=re.escape(complaint)):
        normalised(np.array([(0, 0, 9, 9), box]), (40, 30))


def test_invalid_boxes_are_counted_and_normalised_recognised() -> None:
    with pytest.raises(BadRegions, match="has no area, and 2 more"):
        normalised(np.zeros((3, 4)), (40, 30))
    with pytest.raises(BadRegions, match="they seem normalised"):
        normalised(np.array([[0.1, 0.1, 0.9, 1.0]]), (40, 30))
    with pytest.raises(BadRegions, match=re.escape("shape (2, 5)")):
        normalised(np.zeros((2, 5)), (40, 30))


def test_every_complaint_names_its_image(make_dataset: Make) -> None:
    wide, half, spoilt, huge = (
        sound_regions(1, 2, channels=5),
        sound_regions(2, 2),
        sound_regions(3, 2),
        sound_regions(4, 2),
    )
    spoilt[0][1, 0], huge[0][0, 0] = np.nan, 1e6
    images: dict[int, RawRegions | str] = {
        1: RawRegions(*wide),
        2: RawRegions(half[0], half[1][:1]),
        3: RawRegions(*spoilt),
        4: RawRegions(*huge),
        5: RawRegions(np.zeros((0, 4)), np.zeros((0, 4))),
        6: "is torn",
        8: RawRegions(*sound_regions(8, 1)),
        9: RawRegions(*sound_regions(9, 100)),
        10: RawRegions(*sound_regions(10, 2)),
    }
    dataset = make_dataset(range(1, 12))
    (dataset.root / "10.png").unlink()
    found = dict(read_regions(Told(images), dataset, skip=[11]))
    complaints = {image_id: text for image_id, text in found.items() if isinstance(text, str)}
    assert complaints == {
        1: "image 1: has 5 channels instead of 4 (told, 1.png)",
        2: "image 2: has 2 regions but 1 boxes (told, 2.png)",
        3: "image 3: has NaN or infinite values in 1 of 2 regions (told, 3.png)",
        4: "image 4: has values beyond half precision in 1 of 2 regions (told, 4.png)",
        5: "image 5: has 0 regions (told, 5.png)",
        6: "image 6: is torn (told, 6.png)",
        7: "image 7: has no regions in told",
        10: f"image 10: {NO_SIZE} is missing (told, 10.png)",
    }
    assert {image_id for image_id in found if image_id not in complaints} == {8, 9}
    regions = found[9]
    assert regions.size == (40, 30)
    assert regions.boxes.shape == (100, 4)


def test_sizes_come_from_source_then_annotations_then_image(make_dataset: Make) -> None:
    dataset = make_dataset((1, 2, 3))
    told = Dataset("tiny", dataset.root, dataset.samples, "f1ea", sizes={1: (80, 60), 2: (80, 60)})
    box = np.array([[0, 0, 20, 30]], np.float32)
    raw = RawRegions(np.ones((1, 4)), box)
    images: dict[int, RawRegions | str] = {1: RawRegions(np.ones((1, 4)), box, (160, 120)), 2: raw, 3: raw}
    found = dict(read_regions(Told(images), told))
    edges = {image_id: regions.boxes[0, 2] for image_id, regions in found.items() if not isinstance(regions, str)}  # type: ignore[index]
    assert edges == {1: 0.125, 2: 0.25, 3: 0.5}


def test_boxes_of_a_picture_that_was_turned_are_refused(make_dataset: Make) -> None:
    dataset = make_dataset((1, 2))
    told = Dataset("tiny", dataset.root, dataset.samples, "f1ea", sizes={1: (30, 40), 2: (40, 30)})
    box = RawRegions(None, np.array([[0, 0, 20, 30]], np.float32))
    found = dict(read_regions(Told({1: box, 2: box}), told))
    assert (str(found[1]).partition(":")[0], isinstance(found[2], str)) == ("image 1", False)


@pytest.mark.parametrize(
    ("keep", "scores", "chosen"),
    [
        ("all", True, [0, 1, 2, 3]),
        ("fixed:2", True, [1, 3]),
        ("fixed:2", False, [0, 2]),
        ("fixed:9", True, [0, 1, 2, 3]),
        ("adaptive:1-3", True, [1, 3]),
        ("adaptive:3-4", True, [1, 2, 3]),
        ("adaptive:1-1", True, [3]),
        ("adaptive:1-3", False, [0, 1, 2]),
        ("first:2", True, [0, 1]),
        ("first:2", False, [0, 1]),
        ("first:9", True, [0, 1, 2, 3]),
    ],
)
def test_kept_regions_are_the_best_in_their_order(
    make_dataset: Make, keep: str, scores: bool, chosen: list[int]
) -> None:
    features = np.arange(4, dtype=np.float32)[:, None]
    boxes = np.array([[0, 0, side, side] for side in (20, 10, 15, 5)], np.float32)
    raw = RawRegions(features, boxes, None, np.array([0.1, 0.5, 0.15, 0.9]) if scores else None)
    config = RegionConfig(source="boxes", keep=keep)
    told = read_regions(Told({1: raw}), make_dataset([1]), config=config)
    [(_, found)] = told
    assert found.features[:, 0].tolist() == chosen
    assert len(found.boxes) == len(chosen)


@pytest.mark.parametrize(
    ("source", "keep", "named"),
    [
        *(("boxes", keep, "--region-count") for keep in ("", "36", "fixed:0", "fixed:", "adaptive:9-3")),
        *(("boxes", keep, "--region-count") for keep in ("adaptive:0-3", "adaptive:3")),
        *((source, "all", "windows") for source in ("windows:", "windows:1", "windows:20", "windows:4.json")),
        (None, "fixed:36", "needs --regions"),
    ],
)
def test_choices_that_cannot_be_made_are_refused(source: str | None, keep: str, named: str) -> None:
    with pytest.raises(BenchError, match=named):
        region_config(source, keep)


@pytest.mark.parametrize("number", [65519.99, 65520.0])
def test_the_largest_number_is_what_half_precision_rounds_to_infinity(number: float) -> None:
    source = Told({1: RawRegions(np.full((2, 4), number, np.float64))})
    dataset = Dataset("d", Path(), (Sample(1, "a.png", "train", ("a",)),), "d")
    [(_, regions)] = read_regions(source, dataset)
    with np.errstate(over="ignore"):
        assert isinstance(regions, str) == np.isinf(np.float64(number).astype(np.float16))
