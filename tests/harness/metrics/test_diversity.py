"""Length, distinct n-grams and vocabulary of captions, against numbers worked out by hand."""

import math

import pytest

from harness.metrics.more.diversity import ONE_CAPTION, measure_diversity, measure_self_cider
from harness.metrics.ptb import tokenize_ptb
from results.records import Quantity


def diversity_of(*captions: str) -> dict[str, Quantity]:
    return measure_diversity(dict(enumerate(captions))).values


def test_words_and_pairs_are_counted_over_all_captions() -> None:
    found = {name: cost.value for name, cost in diversity_of("A dog runs.", "a dog, a cat", "Dog").items()}
    # Words: a dog runs | a dog a cat | dog. Pairs: a-dog dog-runs | a-dog dog-a a-cat.
    assert found == {
        "caption_words": pytest.approx(8 / 3),
        "caption_words_sd": pytest.approx((42 / 27) ** 0.5),  # of 3, 4 and 1
        "distinct-1": pytest.approx(4 / 8),
        "distinct-2": pytest.approx(4 / 5),
        "vocabulary_used": 4.0,
    }


def test_what_has_no_n_gram_is_null_with_its_reason() -> None:
    found = diversity_of("", "dog")
    assert (found["caption_words"].value, found["distinct-1"].value) == (0.5, 1.0)
    assert (found["distinct-2"].value, found["distinct-2"].reason) == (None, "no caption has a pair of words")
    assert {each.value for each in diversity_of().values()} == {None}


REFERENCES = {1: ["X y.", "x"], 2: ["z w"]}


def measure(sets):
    [(name, quantity)] = measure_self_cider(sets, REFERENCES, tokenize_ptb).values.items()
    return name, quantity


def test_two_captions_by_hand():
    """Every n-gram occurs with one image of two, so that weights are equal.

    "x y" and "x z": cosine 1/2 of words, 0 of pairs, none longer. With themselves 1, 1, 0, 0. The matrix has 1/2 on its
    diagonal and 1/8 beside it: eigenvalues 5/8 and 3/8.
    """
    ratio = math.sqrt(5) / (math.sqrt(5) + math.sqrt(3))
    name, found = measure({1: ["x y", "x z"]})
    assert found.value == pytest.approx(-math.log2(ratio))
    assert name == "self-CIDEr (captions:2, df:references)"


def test_the_mean_is_over_images_between_none_and_all_different():
    _, found = measure({1: ["x y", "x y"], 2: ["x y", "z w"]})
    assert found.value == pytest.approx((0 + 1) / 2)
    assert (found.low, found.high) == (pytest.approx(0), pytest.approx(1))


def test_one_caption_of_each_image_is_null():
    assert measure({1: ["x y"], 2: ["z", "w"]}) == ("self-CIDEr", Quantity(None, ONE_CAPTION))
    assert measure({}) == ("self-CIDEr", Quantity(None, ONE_CAPTION))
    [alone] = measure_self_cider({1: ["x", "y"]}, {1: ["x"]}, tokenize_ptb).values.values()
    assert alone.value is None
    assert "one image alone" in alone.reason
