"""The reference rows: the caption of the nearest training image, and the one caption for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from harness.benchmark.baselines import majority_caption, retrieved_captions
from harness.data.dataset import Sample


def samples(*captions: tuple[str, ...]) -> list[Sample]:
    return [Sample(number, f"{number}.png", "train", texts) for number, texts in enumerate(captions)]


class Vectors:
    """Pooled features by image id."""

    def __init__(self, **rows: Sequence[float]) -> None:
        self._rows = {int(name.removeprefix("image")): row for name, row in rows.items()}
        self.asked: list[int] = []

    def pooled(self, image_ids: Sequence[int]) -> Any:
        self.asked.append(len(image_ids))
        return np.array([self._rows[image_id] for image_id in image_ids], dtype=np.float32)


TRAIN = samples(("a dog", "the dog"), ("a cat",), ("a bird",))


def retrieve(features: Vectors, *image_ids: int, block: int = 256) -> dict[int, str]:
    asked = [Sample(image_id, "", "test", ("unknown",)) for image_id in image_ids]
    vectors: Any = features
    return retrieved_captions(asked, TRAIN, vectors, block)


def test_an_image_gets_the_first_caption_of_the_nearest_by_angle() -> None:
    features = Vectors(image0=(9, 0), image1=(1, 1), image2=(0, 0.1), image7=(1, 0.1), image8=(50, 60), image9=(0, 7))
    assert retrieve(features, 7, 8, 9) == {7: "a dog", 8: "a cat", 9: "a bird"}


def test_equally_near_images_give_the_earlier_caption() -> None:
    features = Vectors(image0=(0, 1), image1=(2, 0), image2=(1, 0), image8=(4, 0), image9=(0, 0))
    assert retrieve(features, 8, 9) == {8: "a cat", 9: "a dog"}, "an image of zeros is as far from all"


def test_retrieval_in_blocks_gives_the_same_captions() -> None:
    generator = np.random.default_rng(0)
    features = Vectors(**{f"image{number}": generator.normal(size=4).tolist() for number in range(12)})
    whole = retrieve(features, *range(3, 12))
    features.asked.clear()
    assert retrieve(features, *range(3, 12), block=4) == whole
    assert features.asked == [len(TRAIN), 4, 4, 1]


def test_the_majority_caption_is_given_as_it_was_written() -> None:
    train = samples(("A dog runs!", "some dog"), ("A dog sits.", "a  Dog runs."), ("The cat", "a bird"))
    assert majority_caption(train) == "A dog runs!"


@pytest.mark.parametrize("order", [1, -1])
def test_ties_go_to_the_first_caption_by_its_tokens(order: int) -> None:
    train = samples(("Two birds",), ("one cat",), ("red car",))[::order]
    assert majority_caption(train) == "one cat"
