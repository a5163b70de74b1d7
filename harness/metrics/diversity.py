"""What a set of captions is like, whatever the references: length, distinct n-grams, and the vocabulary used.

Distinct-n is that of Li et al. (NAACL 2016, arXiv:1510.03055): different n-grams over all n-grams of the captions. It
falls as captions become more, so that only systems on the same images can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import pstdev

from harness.metrics.ptb.python import tokenize_ptb
from results.records import Quantity

NAMES = ("caption_words", "caption_words_sd", "distinct-1", "distinct-2", "vocabulary_used")


def measure_diversity(captions: Sequence[str]) -> dict[str, Quantity]:
    """Measures of one system's captions, one of each image, in PTB tokens without punctuation.

    Returns:
        `caption_words` and `caption_words_sd` (mean and standard deviation of a caption's words), `distinct-1`,
        `distinct-2` (fractions) and `vocabulary_used` (different words); a fraction of no n-gram at all is NULL.
    """
    words = [tokens.split() for tokens in tokenize_ptb(list(captions))]
    single = [word for caption in words for word in caption]
    double = [pair for caption in words for pair in pairwise(caption)]
    if not words:
        reason = "there is no caption"
        return dict.fromkeys(NAMES, Quantity(None, reason))
    return {
        "caption_words": Quantity(len(single) / len(words), unit="words"),
        "caption_words_sd": Quantity(pstdev(map(len, words)), unit="words"),
        "distinct-1": _distinct(single, "word"),
        "distinct-2": _distinct(double, "pair of words"),
        "vocabulary_used": Quantity(float(len(set(single))), unit="words"),
    }


def _distinct(grams: Sequence[object], what: str) -> Quantity:
    if not grams:
        return Quantity(None, f"no caption has a {what}")
    return Quantity(len(set(grams)) / len(grams))
