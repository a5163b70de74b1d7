"""BLEU, ROUGE-L and CIDEr-D on sufficient statistics: equal to pycocoevalcap 1.2 on COCO and on any words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pycocoevalcap.bleu.bleu_scorer import BleuScorer
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

from harness.metrics import ngrams
from harness.metrics.bleu import BLEU
from harness.metrics.cider import cider_d
from harness.metrics.contract import CIDER_D
from harness.metrics.ngrams import Corpus
from harness.metrics.rouge import rouge_l

EXACT = {"abs": 1e-12, "rel": 0}
captions = st.lists(st.sampled_from(["a", "cat", "dog", "runs", "on", "the", "22\u00a03/4"]), max_size=9).map(" ".join)
images = st.lists(st.tuples(st.lists(captions, min_size=1, max_size=4), captions), min_size=1, max_size=8)


def theirs(references, candidates):
    """BLEU corpus, per image and counts; ROUGE-L and CIDEr-D per image, all by pycocoevalcap."""
    bleu = BleuScorer(n=4)
    for image_id, texts in references.items():
        bleu += (candidates[image_id], texts)
    corpus, per_image = bleu.compute_score(option="closest", verbose=0)
    rouge = [Rouge().calc_score([candidates[i]], texts) for i, texts in references.items()]
    cider = Cider().compute_score(references, {i: [candidates[i]] for i in references})[1]
    guessed = np.array([test["guess"] for test in bleu.ctest])
    correct = np.array([test["correct"] for test in bleu.ctest])
    return corpus, np.array(per_image).T, guessed, correct, rouge, cider


@settings(max_examples=80)
@example([(["a"], "a")])
@example([([""], ""), (["a cat", "a"], "")])
@given(images)
def test_equal_on_any_words(pairs):
    references = {number: ["word", *texts] for number, (texts, _) in enumerate(pairs)}
    candidates = {number: text for number, (_, text) in enumerate(pairs)}
    corpus, per_image, guessed, correct, rouge, cider = theirs(references, candidates)
    ours = Corpus.of_texts(references, candidates)
    bleu = BLEU.statistics(ours)
    assert (bleu.values[:, 2:6] == guessed).all()
    assert (bleu.values[:, 6:] == correct).all()
    assert list(bleu.corpus().values()) == pytest.approx(corpus, **EXACT)
    assert np.column_stack(list(bleu.per_image().values())) == pytest.approx(per_image, **EXACT)
    assert rouge_l(references, candidates).per_image()["ROUGE-L"] == pytest.approx(rouge, **EXACT)
    assert cider_d(ours, ours.frequencies()) == pytest.approx(cider, **EXACT)


@pytest.mark.parametrize(("block_tokens", "narrow_words"), [(80_000, 65_535), (3_000, 65_535), (3_000, 50)])
def test_equal_on_coco_however_the_work_is_cut_and_packed(coco, monkeypatch, block_tokens, narrow_words):
    monkeypatch.setattr(ngrams, "_BLOCK_TOKENS", block_tokens)
    monkeypatch.setattr(ngrams, "NARROW_WORDS", narrow_words)
    corpus = Corpus.of_texts(coco.tokenized_references, coco.tokenized_candidates)
    bleu = BLEU.statistics(corpus)
    cider = CIDER_D.statistics(cider_d(corpus, corpus.frequencies()))
    rouge = rouge_l(coco.tokenized_references, coco.tokenized_candidates)
    for statistics in (bleu, cider, rouge):
        for metric, value in statistics.corpus().items():
            assert value == pytest.approx(coco.corpus[metric], **EXACT), metric
        for metric, values in statistics.per_image().items():
            assert values == pytest.approx(list(coco.per_image[metric].values()), **EXACT), metric
    totals = bleu.values.sum(axis=0)
    assert totals.tolist() == [8289, 8026, 8289, 7489, 6689, 5889, 5186, 2254, 897, 355]


def test_large_corpora_are_counted_again_instead_of_kept(coco, monkeypatch):
    monkeypatch.setattr("harness.metrics.ngrams._KEPT_TOKENS", 0)
    corpus = Corpus.of_texts(coco.tokenized_references, coco.tokenized_candidates)
    assert cider_d(corpus, corpus.frequencies()).mean() == pytest.approx(coco.corpus["CIDEr-D"], **EXACT)
    assert not corpus._kept


@pytest.mark.parametrize("long", ["word " * 10_000, " ".join(map(str, range(10_000)))])
def test_long_captions(long):
    references = {1: [long, "a cat"], 2: ["a dog", long + "dog"]}
    candidates = {1: long, 2: "a dog"}
    ours = Corpus.of_texts(references, candidates)
    assert rouge_l(references, candidates).per_image()["ROUGE-L"] == pytest.approx([1, 1], abs=1e-3)
    assert BLEU.statistics(ours).per_image()["BLEU-4"][0] == pytest.approx(1)
    assert np.isfinite(cider_d(ours, ours.frequencies())).all()
