"""Further metrics of finished runs: added without touching their scores, and read apart from these."""

from collections.abc import Callable
from typing import Any

import pytest

from results import Quantity, Results, SplitResult, Store
from results.runs.leaderboard import leaderboard
from results.runs.more_metrics import MORE_METRICS, base_name, depends_on, is_more, more_order
from results.runs.reading import finished_with_images, one_run
from results.store.rescoring import add_scores

CHAIR = "CHAIR-s (objects:scenes)"


def test_they_are_read_apart_from_the_scores(store: Store, add: Callable[..., str], make: Any) -> None:
    store.record_dataset(make.dataset())
    keys = [add("blind", seed, cider) for seed, cider in ((1, 0.25), (2, 0.75))]
    before, detail = leaderboard(store), one_run(store, keys[0])
    for key, share in zip(keys, (0.0, 0.5), strict=True):
        values = {CHAIR: Quantity(share, low=0.0, high=1.0), "CLIPScore": Quantity(None, "no CLIP model is named")}
        by_image = {CHAIR: {1: share, 2: share, 30: share}}
        add_scores(store, key, [SplitResult("test", {1: "", 2: "", 30: ""}, {"overall": values}, by_image)])
    [group] = leaderboard(store)
    [row] = group.rows
    assert (row.more[CHAIR].mean, row.more[CHAIR].sd) == (0.25, pytest.approx(0.5**1.5))
    assert row.more["CLIPScore"].reason == "no CLIP model is named"
    assert row.scores == before[0].rows[0].scores
    assert row.standings == before[0].rows[0].standings
    assert one_run(store, keys[0]).scores == detail.scores
    assert {metric for run in finished_with_images(store) for of in run.by_image.values() for metric in of} == {
        "CIDEr-D"
    }
    with Results(store) as results:
        assert not results.scores()["metric"].isin([CHAIR, "CLIPScore"]).any()
        assert set(results.image_scores()["metric"]) == {"CIDEr-D"}
        more = results.more_metrics()
        assert list(more["value"].dropna()) == [0.0, 0.5]
        assert list(more["better"]) == ["lower", "higher"] * 2


def test_names_say_what_a_metric_depends_on() -> None:
    assert (base_name(CHAIR), depends_on(CHAIR)) == ("CHAIR-s", "objects:scenes")
    assert is_more(CHAIR)
    assert not any(map(is_more, ("CIDEr-D", "CIDEr-D (df:domain)", "SPICE")))
    assert more_order([CHAIR, "caption_words", "CLIPScore (clip:b)", "CLIPScore (clip:a)"]) == [
        "caption_words", CHAIR, "CLIPScore (clip:a)", "CLIPScore (clip:b)",
    ]  # fmt: skip
    assert all(metric.better in {"higher", "lower", "neither"} for metric in MORE_METRICS.values())
