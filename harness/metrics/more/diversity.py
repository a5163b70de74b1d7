"""Measures of captions that need no references: length, distinct n-grams, vocabulary, and self-CIDEr.

Distinct-n is that of Li et al. (NAACL 2016, arXiv:1510.03055): different n-grams over all n-grams of the captions. It
falls with the number of captions, so that only systems on the same images can be compared.

Self-CIDEr measures how much several captions of one image differ. Wang and Chan, "Describing like Humans: on Diversity
in Image Captioning", CVPR 2019 (arXiv:1903.12020), section 3: with the eigenvalues e1 >= e2 >= ... of the matrix of
CIDEr between all m captions of an image, the ratio r = sqrt(e1) / sum(sqrt(e)) is 1 where all are the same and 1/m
where none share an n-gram; the diversity is -log_m(r). CIDEr is the plain one (Vedantam et al., CVPR 2015), the mean
over n-grams of order 1 to 4 of the cosine of tf-idf vectors: with the clipping and length penalty of CIDEr-D the matrix
is neither symmetric nor free of negative eigenvalues. The authors' code takes document frequencies of COCO's training
set; here they are over the references of the images scored, as for CIDEr-D.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, pairwise
from statistics import pstdev
from typing import Final

import numpy as np

from harness.metrics.more.measured import Measured, mean_measured, not_measured
from harness.metrics.ngrams import MAX_ORDER
from harness.metrics.ptb import tokenize_by_image, tokenize_ptb
from results.records import Quantity
from results.statistics.significance import Array

NAMES = ("caption_words", "caption_words_sd", "distinct-1", "distinct-2", "vocabulary_used")
SELF_CIDER: Final = "self-CIDEr"
ONE_CAPTION: Final = "one caption of each image: several of each are needed to compare them"
_ROUNDING: Final = 1e-12


def measure_diversity(
    captions: Mapping[int, str], tokenize: Callable[[Sequence[str]], list[str]] = tokenize_ptb
) -> Measured:
    """Measures of one caption per image, on tokens without punctuation.

    `caption_words` and `caption_words_sd` are mean and standard deviation of the words in a caption, `distinct-1` and
    `distinct-2` fractions of distinct n-grams, None without any n-gram, and `vocabulary_used` the number of distinct
    words.
    """
    words = [tokens.split() for tokens in tokenize(list(captions.values()))]
    if not words:
        return not_measured(NAMES, "there is no caption")
    single = [word for caption in words for word in caption]
    double = [pair for caption in words for pair in pairwise(caption)]
    lengths = np.array(list(map(len, words)), np.float64)
    return mean_measured(NAMES[0], lengths, list(captions), unit="words") | Measured(
        {
            "caption_words_sd": Quantity(pstdev(map(len, words)), unit="words"),
            "distinct-1": _distinct(single, "word"),
            "distinct-2": _distinct(double, "pair of words"),
            "vocabulary_used": Quantity(float(len(set(single))), unit="words"),
        }
    )


def _distinct(grams: Sequence[object], unit: str) -> Quantity:
    if not grams:
        return Quantity(None, f"no caption has a {unit}")
    return Quantity(len(set(grams)) / len(grams))


_Gram = tuple[str, ...]


def measure_self_cider(
    sets: Mapping[int, Sequence[str]],
    references: Mapping[int, Sequence[str]],
    tokenize: Callable[[Sequence[str]], list[str]],
) -> Measured:
    """The mean over images of the diversity of their captions; None if an image has fewer than two captions."""
    if not sets or min(map(len, sets.values())) < 2:
        return not_measured([SELF_CIDER], ONE_CAPTION)
    if len(references) < 2:
        return not_measured([SELF_CIDER], "one image alone has no document frequencies")
    frequencies = _frequencies(tokenize_by_image(references, tokenize))
    tokenised = tokenize_by_image(sets, tokenize)
    scores = [diversity(_similarity(texts, frequencies, len(references))) for texts in tokenised.values()]
    counts = sorted({len(texts) for texts in sets.values()})
    n_captions = str(counts[0]) if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"
    return mean_measured(SELF_CIDER, np.array(scores), list(sets), f"captions:{n_captions}, df:references")


def diversity(similarity: Array) -> float:
    """The diversity, from 0 to 1, of m >= 2 captions with a matrix (m, m) of similarities."""
    roots = np.sqrt(np.clip(np.linalg.eigvalsh(similarity), 0, None))
    total = float(roots.sum())
    if total <= _ROUNDING:  # no caption has an n-gram with a weight: all are equally empty
        return 0.0
    return float(max(0.0, -np.log(roots[-1] / total) / np.log(len(similarity))))


def _similarity(captions: Sequence[str], frequencies: Mapping[_Gram, int], images: int) -> Array:
    """CIDEr between all pairs of captions, as fractions (m, m)."""
    total = np.zeros((len(captions), len(captions)))
    for order in range(1, MAX_ORDER + 1):
        counted = [Counter(_grams(caption, order)) for caption in captions]
        columns = {gram: column for column, gram in enumerate(dict.fromkeys(chain.from_iterable(counted)))}
        vectors = np.zeros((len(captions), len(columns)))
        for row, counts in enumerate(counted):
            for gram, count in counts.items():
                vectors[row, columns[gram]] = count * np.log(images / max(frequencies.get(gram, 0), 1))
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        units = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
        total += units @ units.T
    return np.asarray(total / MAX_ORDER)


def _frequencies(references: Mapping[int, Sequence[str]]) -> Counter[_Gram]:
    """For each n-gram, the number of images whose references contain it."""
    frequencies = Counter[_Gram]()
    for texts in references.values():
        of_image: set[_Gram] = set()
        for text in texts:
            for order in range(1, MAX_ORDER + 1):
                of_image.update(_grams(text, order))
        frequencies.update(of_image)
    return frequencies


def _grams(caption: str, order: int) -> list[_Gram]:
    words = caption.split()
    return [tuple(words[start : start + order]) for start in range(len(words) - order + 1)]
