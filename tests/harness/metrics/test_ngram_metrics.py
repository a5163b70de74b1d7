"""BLEU, ROUGE-L and CIDEr-D on sufficient statistics: equal to pycocoevalcap 1.2 on COCO and on any words."""

from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pycocoevalcap.bleu.bleu_scorer import BleuScorer
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.cider.cider_scorer import CiderScorer, precook
from pycocoevalcap.rouge.rouge import Rouge

from harness.metrics import ngrams
from harness.metrics.bleu import bleu
from harness.metrics.cider import cider_d, cider_rewards, consensus_scores, mean_cider_d
from harness.metrics.contract import mean_of
from harness.metrics.ngrams import Corpus, DocumentFrequencies, Tokenised
from harness.metrics.rouge import rouge_l
from harness.utils.errors import BenchError

EXACT = {"abs": 1e-12, "rel": 0}
captions = st.lists(st.sampled_from(["a", "cat", "dog", "runs", "on", "the", "22\u00a03/4"]), max_size=9).map(" ".join)
images = st.lists(st.tuples(st.lists(captions, min_size=1, max_size=4), captions), min_size=1, max_size=8)


def frequencies_of(references):
    """Of references by image, as token numbers."""
    numbers = Tokenised.of_numbers(caption for image in references for caption in image)
    return DocumentFrequencies.of_captions(numbers, np.cumsum([0, *map(len, references)]))


def theirs(references, candidates):
    """BLEU corpus, per image and counts; ROUGE-L and CIDEr-D per image, all by pycocoevalcap."""
    theirs = BleuScorer(n=4)
    for image_id, texts in references.items():
        theirs += (candidates[image_id], texts)
    corpus, per_image = theirs.compute_score(option="closest", verbose=0)
    rouge = [Rouge().calc_score([candidates[i]], texts) for i, texts in references.items()]
    cider = Cider().compute_score(references, {i: [candidates[i]] for i in references})[1]
    guessed = np.array([test["guess"] for test in theirs.ctest])
    correct = np.array([test["correct"] for test in theirs.ctest])
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
    found = bleu(ours)
    assert (found.values[:, 2:6] == guessed).all()
    assert (found.values[:, 6:] == correct).all()
    assert list(found.corpus().values()) == pytest.approx(corpus, **EXACT)
    assert np.column_stack(list(found.per_image().values())) == pytest.approx(per_image, **EXACT)
    assert rouge_l(references, candidates).per_image()["ROUGE-L"] == pytest.approx(rouge, **EXACT)
    assert cider_d(ours, ours.frequencies()) == pytest.approx(cider, **EXACT)


@pytest.mark.parametrize(("block_tokens", "narrow_words"), [(80_000, 65_535), (3_000, 65_535), (3_000, 50)])
def test_equal_on_coco_however_the_work_is_cut_and_packed(coco, monkeypatch, block_tokens, narrow_words):
    monkeypatch.setattr(ngrams, "_BLOCK_TOKENS", block_tokens)
    monkeypatch.setattr(ngrams, "NARROW_WORDS", narrow_words)
    corpus = Corpus.of_texts(coco.tokenized_references, coco.tokenized_candidates)
    scored = bleu(corpus)
    cider = mean_of("CIDEr-D", cider_d(corpus, corpus.frequencies()))
    rouge = rouge_l(coco.tokenized_references, coco.tokenized_candidates)
    for statistics in (scored, cider, rouge):
        for metric, value in statistics.corpus().items():
            assert value == pytest.approx(coco.corpus[metric], **EXACT), metric
        for metric, values in statistics.per_image().items():
            assert values == pytest.approx(list(coco.per_image[metric].values()), **EXACT), metric
    assert scored.values.sum(axis=0).tolist() == [8289, 8026, 8289, 7489, 6689, 5889, 5186, 2254, 897, 355]


@pytest.mark.parametrize("long", ["word " * 10_000, " ".join(map(str, range(10_000)))])
def test_long_captions(long):
    references = {1: [long, "a cat"], 2: ["a dog", long + "dog"]}
    candidates = {1: long, 2: "a dog"}
    ours = Corpus.of_texts(references, candidates)
    assert rouge_l(references, candidates).per_image()["ROUGE-L"] == pytest.approx([1, 1], abs=1e-3)
    assert bleu(ours).per_image()["BLEU-4"][0] == pytest.approx(1)
    assert np.isfinite(cider_d(ours, ours.frequencies())).all()


WORDS = ["a", "dog", "runs", "the", "on", "grass"]


def test_no_words_and_single_images_score_zero():
    assert mean_cider_d({1: ["a cat"]}, {1: "a cat"}) == 0.0
    assert mean_cider_d({1: [""], 2: [""]}, {1: "", 2: "a"}) == 0.0


def test_other_images_are_refused():
    with pytest.raises(BenchError, match=r"no caption \(2\)"):
        mean_cider_d({1: ["a cat"], 2: ["a dog"]}, {1: "a cat"})


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
    captions = [caption for texts in references.values() for caption in texts]
    expected = [mean_cider_d(references, dict.fromkeys(references, caption)) for caption in captions]
    np.testing.assert_allclose(consensus_scores(references), expected, atol=1e-14, rtol=0)


@pytest.fixture(scope="module")
def data(coco):
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


def rewards_of_theirs(references, samples, training):
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
    found = partial(cider_rewards, frequencies=frequencies_of(training))(references[:60], samples[:60])
    assert found.shape == (60, 2)
    assert found == pytest.approx(rewards_of_theirs(references[:60], samples[:60], training), abs=1e-12, rel=0)
    assert found.min() > 0
    assert found.std() > 0.1


def test_frequencies_are_independent_of_blocks(data, monkeypatch):
    references, _ = data
    whole = frequencies_of(references)
    monkeypatch.setattr(ngrams, "_BLOCK_TOKENS", 1_000)
    made = frequencies_of(references)
    assert (made.keys == whole.keys).all()
    assert (made.counts == whole.counts).all()
    assert made.images == whole.images == len(references)
    assert (np.diff(whole.keys.astype(object)) > 0).all()


def test_rewards_do_not_depend_on_the_batch(data):
    references, samples = data
    reward = partial(cider_rewards, frequencies=frequencies_of(references))
    together = reward(references[:8], samples[:8])
    one_by_one = np.concatenate([reward(references[i : i + 1], samples[i : i + 1]) for i in range(8)])
    assert together == pytest.approx(one_by_one, abs=1e-13)


def test_wrong_numbers_are_refused(data):
    references, samples = data
    reward = partial(cider_rewards, frequencies=frequencies_of(references))
    for bad in (-1, 65_534):
        with pytest.raises(ValueError, match="between 0 and 65533"):
            reward(references[:1], [[[bad]]])
    with pytest.raises(ValueError, match="different numbers of samples"):
        reward(references[:2], [samples[0], samples[1][:1]])
    with pytest.raises(ValueError, match="zip"):
        reward(references[:2], samples[:1])
