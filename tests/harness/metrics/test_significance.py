"""Intervals of every metric: against scipy, and the same from the same seed."""

from __future__ import annotations

import numpy as np
import pytest

from harness.metrics.bleu import bleu
from harness.metrics.cider import cider_d
from harness.metrics.contract import OVERALL, mean_of
from harness.metrics.evaluator import Evaluator, with_intervals
from harness.metrics.ngrams import Corpus
from harness.metrics.rouge import rouge_l
from harness.metrics.signature import EvaluationSettings
from results.statistics.significance import Interval, bootstrap


@pytest.fixture(scope="module")
def systems(coco):
    """Statistics of the human captions."""
    corpus = Corpus.of_texts(coco.tokenized_references, coco.tokenized_candidates)
    cider = mean_of("CIDEr-D", cider_d(corpus, corpus.frequencies()))
    return bleu(corpus), rouge_l(coco.tokenized_references, coco.tokenized_candidates), cider


def test_intervals_equal_scipys(systems):
    stats = pytest.importorskip("scipy.stats")
    ours = bootstrap(systems, resamples=4000)
    bleu, rouge, cider = systems
    for metric, statistics in (("ROUGE-L", rouge), ("CIDEr-D", cider)):
        values = statistics.per_image()[metric]
        theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=4000, batch=200, rng=1)
        width = theirs.confidence_interval.high - theirs.confidence_interval.low
        assert ours[metric].low == pytest.approx(theirs.confidence_interval.low, abs=0.04 * width)
        assert ours[metric].high == pytest.approx(theirs.confidence_interval.high, abs=0.04 * width)
    assert ours["BLEU-4"].low < bleu.corpus()["BLEU-4"] < ours["BLEU-4"].high


def test_every_score_of_an_evaluation_gets_its_interval(coco):
    ids = list(coco.references)
    domains = {i: "few" if n < 200 else "many" for n, i in enumerate(ids)}
    for df in ("all", "subset"):
        with Evaluator(settings=EvaluationSettings(meteor=False, domain_df=df)) as evaluator:
            bare = evaluator.evaluate(coco.references, coco.candidates, domains)
        found = with_intervals(bare)
        assert {group: bootstrap(parts) for group, parts in bare.statistics.items()} == {
            group: {m: Interval(q.low, q.high) for m, q in scores.items() if q.value is not None}
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
