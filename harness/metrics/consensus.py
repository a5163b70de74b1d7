"""Consensus scores: the mean CIDEr-D of each reference caption over all images of a data set.

The scores are exact without comparing pairs of captions: what a reference adds to a candidate's score depends only on
their shared n-grams and on the candidate's length, so references are summed once by n-gram for each length. A candidate
with an n-gram k times shares min(k, r) of it with a reference that has it r times: 1 if k and r are at least 1, another
1 if both are at least 2, and so on; each of these sums is one layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.metrics.cider import SCALE, SIGMA
from harness.metrics.contract import Array
from harness.metrics.ngrams.corpus import Block, Corpus
from harness.metrics.ngrams.counting import MAX_ORDER
from harness.metrics.ngrams.frequencies import DocumentFrequencies

_ENTRY: Final = np.dtype(
    [("gram", "i4"), ("caption", "i4"), ("length", "i4"), ("count", "i4"), ("given", "f8"), ("norm", "f8")]
)
"""An n-gram of a caption: its count, what each occurrence contributes in a reference, and the caption's norm."""


def consensus_scores(references: Mapping[int, Sequence[str]]) -> Array:
    """Mean CIDEr-D (as a fraction) over all images of each reference, image by image in the order given.

    Document frequencies are those of the references; a caption's own image is included.

    Args:
        references: tokenised captions by image id, at least one of each image.
    """
    corpus = Corpus.of_texts(references, dict.fromkeys(references, ""))
    frequencies = corpus.frequencies()
    captions = sum(map(len, references.values()))
    entries = np.concatenate(list(_entries(corpus, frequencies)) or [np.zeros(0, _ENTRY)])
    entries = entries[np.argsort(entries["length"], kind="stable")]
    scores = np.zeros(captions)
    for layer in range(1, int(entries["count"].max(initial=0)) + 1):
        shared = entries[entries["count"] >= layer]
        _, gram = np.unique(shared["gram"], return_inverse=True)
        lengths, starts = np.unique(shared["length"], return_index=True)
        for length, start, stop in zip(lengths, starts, [*starts[1:], len(shared)], strict=True):
            near = np.exp(-((lengths - length).astype(np.float64) ** 2) / (2 * SIGMA**2))
            penalty = np.repeat(near, np.diff(starts, append=len(shared)))
            sums = np.bincount(gram, shared["given"] * penalty)
            mine = shared[start:stop]
            scores += np.bincount(mine["caption"], sums[gram[start:stop]] / mine["norm"], captions)
    return scores * (SCALE / MAX_ORDER / max(len(references), 1))


def _entries(corpus: Corpus, frequencies: DocumentFrequencies) -> Iterator[NDArray[np.void]]:
    """The n-grams of all references, block by block; those that all images share have weight 0 and are left out."""
    before = 0
    for block in corpus:
        entries = _of_block(block, frequencies)
        entries["caption"] += before
        yield entries
        before += int(block.references.sum())


def _of_block(block: Block, frequencies: DocumentFrequencies) -> NDArray[np.void]:
    counts = block.counts
    idf = frequencies.idf(counts.keys)[counts.gram]
    weight = counts.count * idf
    with_candidates = block.first[counts.image] + counts.slot
    cell = with_candidates * MAX_ORDER + counts.orders[counts.gram]
    norm = np.sqrt(np.bincount(cell, weight * weight))[cell]
    kept = norm > 0
    entries = np.zeros(int(kept.sum()), _ENTRY)
    entries["gram"] = np.searchsorted(frequencies.keys, counts.keys)[counts.gram][kept]
    entries["caption"] = (with_candidates - counts.image - 1)[kept]
    entries["length"] = np.maximum(block.lengths - 1, 0)[with_candidates[kept]]
    entries["count"] = counts.count[kept]
    entries["given"] = (weight * idf / block.references[counts.image])[kept] / norm[kept]
    entries["norm"] = norm[kept]
    return entries
