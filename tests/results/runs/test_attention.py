"""Attention maps: what goes in comes out, and belongs to the captions that it was recorded with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from results import AttentionRecord, Store, StoreError
from results.runs import reading

BOXES = ((0.0, 0.25, 0.5, 1.0), (0.0, 0.0, 1.0, 1.0), (0.5, 0.5, 0.75, 0.75))


def test_grids_and_boxes_come_back(store: Store, add: Callable[..., str], make: Any) -> None:
    key = add("blind")
    grid, boxes = make.attention(30), make.attention(1, grid=None, boxes=BOXES)
    store.finish(key, make.outcome(attention=(grid, boxes)))
    assert reading.attention_maps(store, key, "test") == {1: boxes, 30: grid}
    assert reading.attention_maps(store, key, "val") == {}


def test_weights_keep_three_digits(store: Store, add: Callable[..., str], make: Any) -> None:
    key = add("blind")
    weights = tuple(tuple((word + place) / 40.7 for place in range(20)) for word in range(20))
    store.finish(key, make.outcome(attention=(AttentionRecord(2, ("w",) * 20, weights, (4, 5)),)))
    found = reading.attention_maps(store, key, "test")[2]
    for row, expected in zip(found.weights, weights, strict=True):
        assert row == pytest.approx(expected, rel=1e-3)
    with store.reading() as connection:
        assert connection.scalar(text("SELECT length(weights) FROM attention_maps")) == 8 + 2 * 400


def test_finishing_again_drops_the_maps_of_old_captions(store: Store, add: Callable[..., str], make: Any) -> None:
    key = add("blind")
    store.finish(key, make.outcome(attention=(make.attention(1),)))
    store.finish(key, make.outcome())
    assert reading.attention_maps(store, key, "test") == {}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"boxes": BOXES}, "either a grid or boxes"),
        ({"grid": None}, "either a grid or boxes"),
        ({"words": (), "weights": ()}, "no words"),
        ({"grid": (0, 3), "weights": ((), ())}, "no place"),
        ({"grid": (2, 2)}, "needs 4 weights for each of its 2 words"),
        ({"weights": ((0.5, 0.25, 0.25),)}, "3 weights for each"),
        ({"weights": ((0.5, 0.25, 0.25), (0.0, float("nan"), 0.0))}, "not between 0 and 1"),
        ({"weights": ((0.5, 0.25, 0.25), (0.0, 2.0, 0.0))}, "not between 0 and 1"),
        ({"grid": None, "boxes": (*BOXES[:2], (0.0, 0.0, float("inf"), 1.0))}, "not finite"),
    ],
)
def test_maps_that_fit_nothing_are_refused(
    store: Store, add: Callable[..., str], make: Any, changes: dict[str, Any], words: str
) -> None:
    key = add("blind")
    with pytest.raises(StoreError, match=words):
        store.finish(key, make.outcome(attention=(make.attention(1), make.attention(2, **changes))))
    assert reading.attention_maps(store, key, "test") == {}


def test_only_captions_have_maps(store: Store, add: Callable[..., str], make: Any) -> None:
    key = add("blind")
    store.finish(key, make.outcome(attention=(make.attention(2), make.attention(30))))
    with pytest.raises(StoreError, match="no caption of image 3 of the split test"):
        store.finish(key, make.outcome(attention=(make.attention(3),)))
    assert len(reading.attention_maps(store, key, "test")) == 2, "what was there stays"


def test_the_table_itself_holds_either_a_grid_or_boxes(store: Store, add: Callable[..., str], make: Any) -> None:
    store.finish(add("blind"), make.outcome(attention=(make.attention(1),)))
    with store.reading() as connection, pytest.raises(IntegrityError, match="grid_or_boxes"):
        connection.execute(text("UPDATE attention_maps SET grid_height = NULL"))
