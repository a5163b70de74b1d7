"""CIDEr-D for validation, as the consensus of captions, and as reward: equal to pycocoevalcap's for every caption."""

from __future__ import annotations

import numpy as np
import pytest
from pycocoevalcap.cider.cider_scorer import CiderScorer, precook

from harness.metrics import ngrams
from harness.metrics.cider import CiderD, CiderReward, consensus_scores
from harness.metrics.ngrams import DocumentFrequencies
from harness.utils.errors import BenchError

WORDS = ["a", "dog", "runs", "the", "on", "grass"]


def test_equals_pycocoevalcap_on_coco(coco):
    mean, per_image = CiderD(coco.tokenized_references).score(coco.tokenized_candidates)
    assert mean == pytest.approx(coco.corpus["CIDEr-D"], abs=1e-12, rel=0)
    assert per_image == pytest.approx(coco.per_image["CIDEr-D"], abs=1e-12, rel=0)


def test_references_are_reused_and_left_alone():
    references = {1: ["a red cat", "a cat"], 2: ["a dog runs", "one dog"]}
    scorer = CiderD(references)
    first = scorer.score({1: "a red cat", 2: "a zebra"})
    assert first[1][1] > 1 > first[1][2]
    scorer.score({1: "zebra zebra", 2: "a dog"})
    assert scorer.score({1: "a red cat", 2: "a zebra"}) == first


def test_no_words_and_single_images_score_zero():
    assert CiderD({1: ["a cat"]}).score({1: "a cat"}) == (0.0, {1: 0.0})
    assert CiderD({1: [""], 2: [""]}).score({1: "", 2: "a"}) == (0.0, {1: 0.0, 2: 0.0})


def test_other_images_are_refused():
    with pytest.raises(BenchError, match=r"no caption \(2\)"):
        CiderD({1: ["a cat"], 2: ["a dog"]}).score({1: "a cat"})


def random_references(seed: int, images: int) -> dict[int, list[str]]:
    """Captions of few words, so that n-grams repeat within them and between them; lengths and numbers differ."""
    generator = np.random.default_rng(seed)
    return {
        3 * image: [" ".join(generator.choice(WORDS, generator.integers(0, 14))) for _ in range(1 + image % 3)]
        for image in range(images)
    }


@pytest.mark.parametrize(("seed", "images"), [(0, 30), (1, 12), (2, 2), (3, 1)])
def test_scores_are_cider_d_of_one_caption_for_all(seed: int, images: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.metrics.ngrams._BLOCK_TOKENS", 40)  # several blocks
    references = random_references(seed, images)
    scorer = CiderD(references)
    captions = [caption for texts in references.values() for caption in texts]
    expected = [scorer.score(dict.fromkeys(references, caption))[0] for caption in captions]
    np.testing.assert_allclose(consensus_scores(references), expected, atol=1e-14, rtol=0)


def test_there_is_nothing_to_score_without_images() -> None:
    assert consensus_scores({}).size == 0


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
