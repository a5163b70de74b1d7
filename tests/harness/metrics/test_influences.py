"""Influences of images on corpus scores, against leaving each image out."""

from __future__ import annotations

import numpy as np
import pytest

from harness.metrics.bleu import BLEU, bleu
from harness.metrics.contract import Statistics
from harness.metrics.evaluator import Evaluator, influences_by_image
from harness.metrics.meteor import METEOR
from harness.metrics.ngrams import Corpus
from harness.metrics.signature import EvaluationSettings
from results.statistics.significance import SUMS, pseudo_values


@pytest.fixture(scope="module")
def human(coco) -> Statistics:
    return bleu(Corpus.of_texts(coco.tokenized_references, coco.tokenized_candidates))


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


def test_a_single_image_has_no_influence(human) -> None:
    assert influences_by_image([human.of([0])], [7]) == {}
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
