"""Leaving out each reference in turn: rounds, their mean as one score, and METEOR asked once for every pair."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pytest

from harness.metrics.contract import METRICS, OVERALL, mean_of
from harness.metrics.evaluator import Round, held_out_rounds, mean_of_rounds, with_intervals
from results.statistics.significance import Interval, bootstrap

COMPUTED = METRICS[:-1]
UNEQUAL = {7: ["a", "b", "c"], 8: ["d", "e"], 9: ["f"]}


def people(tokens: dict[int, list[str]], _: object) -> list[Round]:
    return held_out_rounds(tokens)


def test_every_reference_is_left_out_in_turn() -> None:
    assert held_out_rounds(UNEQUAL) == [
        Round({7: ["b", "c"], 8: ["e"]}, {7: "a", 8: "d"}),
        Round({7: ["a", "c"], 8: ["d"]}, {7: "b", 8: "e"}),
        Round({7: ["a", "b"], 8: ["e"]}, {7: "c", 8: "d"}),
    ]
    assert held_out_rounds({9: ["f"]}) == []


def test_people_score_the_mean_of_single_evaluations(coco, evaluator) -> None:
    """Of images of three to five references: METEOR's best of several, too, is that of its own program."""
    ids = sorted(coco.references)[:40]
    references = {
        image_id: [*coco.references[image_id], coco.candidates[image_id]][: 3 + image_id % 3] for image_id in ids
    }
    domains = {image_id: "odd" if image_id % 2 else "even" for image_id in ids}
    found = evaluator.evaluate_rounds(references, {}, domains, people)
    single = []
    for number in range(5):
        out = {image_id: number % len(texts) for image_id, texts in references.items()}
        captions = {image_id: references[image_id][out[image_id]] for image_id in ids}
        others = {i: [text for place, text in enumerate(references[i]) if place != out[i]] for i in ids}
        single.append(evaluator.evaluate(others, captions, domains))
    for metric in COMPUTED:
        for domain in (OVERALL, "even", "odd"):
            mean = fmean(each.scores[domain][metric].value for each in single)
            assert found.scores[domain][metric].value == pytest.approx(mean, abs=1e-12, rel=0), (metric, domain)
        for image_id in ids:
            mean = fmean(each.per_image[metric][image_id] for each in single)
            assert found.per_image[metric][image_id] == pytest.approx(mean, abs=1e-12, rel=0), (metric, image_id)
    bounds = with_intervals(found).scores[OVERALL]
    assert all(bounds[metric].low < bounds[metric].value < bounds[metric].high for metric in COMPUTED)


def test_images_of_one_reference_are_left_out(evaluator) -> None:
    references = {1: ["a red dog runs", "the dog is red"], 2: ["two cats"], 3: ["a kite flies", "one kite"]}
    found = evaluator.evaluate_rounds(references, {}, {2: "single"}, people)
    assert found.ids == (1, 3)
    assert found.per_image["ROUGE-L"].keys() == {1, 3}
    assert tuple(found.scores) == (OVERALL,)
    models = evaluator.evaluate_rounds(references, dict.fromkeys(references, "a dog"), None, held_out_rounds)
    assert models.ids == (1, 3)


def test_rounds_that_agree_are_as_certain_as_one() -> None:
    """The interval of a mean is taken of the rounds' mean in each resample, not as a mean of intervals."""
    scores = np.random.default_rng(3).random(50)
    one, mirrored = mean_of("CIDEr-D", scores), mean_of("CIDEr-D", 1 - scores)
    assert mean_of_rounds([one]) is one
    assert bootstrap([mean_of_rounds([one, one])], resamples=300) == bootstrap([one], resamples=300)
    assert bootstrap([mean_of_rounds([one, mirrored])], resamples=300)["CIDEr-D"] == Interval(
        pytest.approx(0.5), pytest.approx(0.5)
    )
