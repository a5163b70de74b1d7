"""Length, distinct n-grams and vocabulary of captions, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from harness.metrics.more.diversity import measure_diversity


def test_words_and_pairs_are_counted_over_all_captions() -> None:
    found = {name: cost.value for name, cost in measure_diversity(["A dog runs.", "a dog, a cat", "Dog"]).items()}
    # Words: a dog runs | a dog a cat | dog. Pairs: a-dog dog-runs | a-dog dog-a a-cat.
    assert found == {
        "caption_words": pytest.approx(8 / 3),
        "caption_words_sd": pytest.approx((42 / 27) ** 0.5),  # of 3, 4 and 1
        "distinct-1": pytest.approx(4 / 8),
        "distinct-2": pytest.approx(4 / 5),
        "vocabulary_used": 4.0,
    }


def test_one_caption_for_all_says_little() -> None:
    found = measure_diversity(["a red ball"] * 10)
    assert (found["distinct-1"].value, found["distinct-2"].value) == (3 / 30, 2 / 20)
    assert found["vocabulary_used"].value == 3


def test_what_has_no_n_gram_is_null_with_its_reason() -> None:
    found = measure_diversity(["", "dog"])
    assert (found["caption_words"].value, found["distinct-1"].value) == (0.5, 1.0)
    assert (found["distinct-2"].value, found["distinct-2"].reason) == (None, "no caption has a pair of words")
    assert {each.value for each in measure_diversity([]).values()} == {None}
