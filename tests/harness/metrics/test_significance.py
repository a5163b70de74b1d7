"""Intervals of every metric, what each image does to a score, and rounds that leave out each reference in turn."""

from statistics import fmean

import numpy as np
import pytest

from harness.metrics.bleu import BLEU, bleu
from harness.metrics.cider import cider_d
from harness.metrics.contract import OVERALL, mean_of
from harness.metrics.evaluator import (
    Evaluator,
    Round,
    held_out_rounds,
    influences_by_image,
    mean_of_rounds,
    with_intervals,
)
from harness.metrics.meteor import METEOR
from harness.metrics.ngrams import Corpus
from harness.metrics.rouge import rouge_l
from harness.metrics.signature import EvaluationSettings
from results.statistics.significance import SUMS, bootstrap, pseudo_values


@pytest.fixture(scope="module")
def systems(coco):
    """Statistics of the human captions."""
    corpus = Corpus.of_texts(coco.tokenized_references, coco.tokenized_candidates)
    cider = mean_of("CIDEr-D", cider_d(corpus, corpus.frequencies()))
    return bleu(corpus), rouge_l(coco.tokenized_references, coco.tokenized_candidates), cider


def test_intervals_equal_scipys(systems):
    stats = pytest.importorskip("scipy.stats")
    ours = bootstrap(systems, resamples=4000)
    words, rouge, cider = systems
    for metric, statistics in (("ROUGE-L", rouge), ("CIDEr-D", cider)):
        values = statistics.per_image()[metric]
        theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=4000, batch=200, rng=1)
        width = theirs.confidence_interval.high - theirs.confidence_interval.low
        assert ours[metric] == pytest.approx(theirs.confidence_interval, abs=0.04 * width)
    assert ours["BLEU-4"][0] < words.corpus()["BLEU-4"] < ours["BLEU-4"][1]


def test_every_score_of_an_evaluation_gets_its_interval(coco):
    domains = {i: "few" if n < 200 else "many" for n, i in enumerate(coco.references)}
    for df in ("all", "subset"):
        with Evaluator(settings=EvaluationSettings(meteor=False, domain_df=df)) as evaluator:
            bare = evaluator.evaluate(coco.references, coco.candidates, domains)
        found = with_intervals(bare)
        assert {group: bootstrap(parts) for group, parts in bare.statistics.items()} == {
            group: {m: (q.low, q.high) for m, q in scores.items() if q.value is not None}
            for group, scores in found.scores.items()
        }
        for group, scores in found.scores.items():
            for metric, quantity in scores.items():
                assert quantity.value == bare.scores[group][metric].value
                if metric in {"METEOR", "SPICE"}:
                    assert (quantity.low, quantity.high) == (None, None)
                else:
                    assert quantity.low < quantity.value < quantity.high
        few, everything = (found.scores[group]["CIDEr-D"] for group in ("few", OVERALL))
        assert few.high - few.low > 1.5 * (everything.high - everything.low)


def test_influences_equal_leaving_each_image_out(coco) -> None:
    ids = list(coco.tokenized_references)[:25]

    def corpus_scores(chosen: list[int]) -> np.ndarray:
        references = {image: coco.tokenized_references[image] for image in chosen}
        captions = {image: coco.tokenized_candidates[image] for image in chosen}
        return np.array(list(bleu(Corpus.of_texts(references, captions)).corpus().values()))

    without = np.array([corpus_scores([image for image in ids if image != out]) for out in ids])
    expected = corpus_scores(ids) + 24 * (without.mean(axis=0) - without)
    of_ids = Corpus.of_texts({image: coco.tokenized_references[image] for image in ids}, coco.tokenized_candidates)
    assert pseudo_values(bleu(of_ids).values, BLEU.score) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("metric", [BLEU, METEOR])
def test_corpora_without_any_match_have_finite_influences(metric) -> None:
    width = 10 if metric is BLEU else 23
    lengths = np.zeros((3, width))
    lengths[:, :2] = [(0, 9), (5, 8), (0, 0)]
    for values in (np.zeros((3, width)), lengths, lengths[:2]):
        assert pseudo_values(values, metric.score) == pytest.approx(0, abs=1e-4)


def test_a_single_image_has_no_influence(systems) -> None:
    assert influences_by_image([systems[0].of([0])], [7]) == {}
    with Evaluator(settings=EvaluationSettings(meteor=False)) as evaluator:
        assert evaluator.evaluate({7: ["a red dog"]}, {7: "a dog"}).influences == {}


def test_an_evaluation_has_influences_of_bleu_and_meteor(coco, evaluator) -> None:
    ids = list(coco.references)[:40]
    chosen = {image: coco.references[image] for image in ids}, {image: coco.candidates[image] for image in ids}
    found = evaluator.evaluate(*chosen, {ids[0]: "few"})
    assert tuple(found.influences) == SUMS == ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR")
    for metric, values in found.influences.items():
        assert list(values) == ids
        assert np.mean(list(values.values())) == pytest.approx(found.scores["overall"][metric].value, abs=1e-12)


COMPUTED = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D")
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
    assert bootstrap([one.of([0])]) == {"CIDEr-D": (None, None)}
    assert bootstrap([mean_of_rounds([one, one])], resamples=300) == bootstrap([one], resamples=300)
    assert bootstrap([mean_of_rounds([one, mirrored])], resamples=300)["CIDEr-D"] == pytest.approx((0.5, 0.5))
