"""CIDEr-D as reward: document frequencies of a training set, several samples an image, token numbers."""

from __future__ import annotations

import numpy as np
import pytest
from pycocoevalcap.cider.cider_scorer import CiderScorer, precook

from harness.metrics import ngrams
from harness.metrics.cider import CiderReward
from harness.metrics.ngrams import DocumentFrequencies


def numbered(coco):
    """References and leave-one-out samples (two an image) as numbers, and as strings of numbers."""
    words: dict[str, int] = {}
    references, samples = [], []
    for image_id, texts in coco.tokenized_references.items():
        all_texts = [[words.setdefault(word, len(words)) for word in text.split()] + [0] for text in texts]
        candidate = [words.setdefault(word, len(words)) for word in coco.tokenized_candidates[image_id].split()] + [0]
        references.append(all_texts)
        samples.append([candidate, all_texts[0][::-1]])
    return references, samples


def text(caption):
    return " ".join(map(str, caption))


@pytest.fixture(scope="module")
def data(coco):
    return numbered(coco)


def theirs(references, samples, training):
    """By pycocoevalcap's scorer, given other document frequencies and number of images than those it would take."""
    scorer = CiderScorer(n=4, sigma=6.0)
    for image, mine in zip(references, samples, strict=True):
        for sample in mine:
            scorer += (text(sample), [text(reference) for reference in image])
    for image in training:
        for ngram in {ngram for reference in image for ngram in precook(text(reference))}:
            scorer.document_frequency[ngram] += 1
    scorer.crefs += [[]] * (len(training) - len(scorer.crefs))
    return np.array(scorer.compute_cider()).reshape(len(samples), -1)


def test_equals_pycocoevalcap_with_the_training_sets_frequencies(data):
    references, samples = data
    training = references[200:]
    reward = CiderReward(DocumentFrequencies.of_numbers(training))
    found = reward(references[:60], samples[:60])
    assert found.shape == (60, 2)
    assert found == pytest.approx(theirs(references[:60], samples[:60], training), abs=1e-12, rel=0)
    assert found.min() > 0
    assert found.std() > 0.1


def test_frequencies_are_independent_of_blocks(data, monkeypatch):
    references, _ = data
    whole = DocumentFrequencies.of_numbers(references)
    monkeypatch.setattr(ngrams, "_BLOCK_TOKENS", 1_000)
    made = DocumentFrequencies.of_numbers(references)
    assert (made.keys == whole.keys).all()
    assert (made.counts == whole.counts).all()
    assert made.images == whole.images == len(references)
    assert (np.diff(whole.keys.astype(object)) > 0).all()


def test_rewards_do_not_depend_on_the_batch(data):
    references, samples = data
    reward = CiderReward(DocumentFrequencies.of_numbers(references))
    together = reward(references[:8], samples[:8])
    one_by_one = np.concatenate([reward(references[i : i + 1], samples[i : i + 1]) for i in range(8)])
    assert together == pytest.approx(one_by_one, abs=1e-13)


def test_unknown_ngrams_and_empty_samples(data):
    references, _ = data
    reward = CiderReward(DocumentFrequencies.of_numbers(references))
    found = reward(references[:2], [[[], [60_000, 60_001]], [references[1][0][:3], references[1][0]]])
    assert found[0].tolist() == [0, 0]
    assert 0 < found[1, 0] < found[1, 1]


def test_no_frequencies_score_zero(data):
    references, samples = data
    assert not CiderReward(DocumentFrequencies.of_numbers([]))(references[:2], samples[:2]).any()


def test_wrong_numbers_are_refused(data):
    references, samples = data
    reward = CiderReward(DocumentFrequencies.of_numbers(references))
    for bad in (-1, 65_534):
        with pytest.raises(ValueError, match="between 0 and 65533"):
            reward(references[:1], [[[bad]]])
    with pytest.raises(ValueError, match="different numbers of samples"):
        reward(references[:2], [samples[0], samples[1][:1]])
    with pytest.raises(ValueError, match="zip"):
        reward(references[:2], samples[:1])
