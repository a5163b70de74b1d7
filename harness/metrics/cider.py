"""CIDEr-D, for evaluation, validation and the reward of self-critical training.

Vedantam et al., "CIDEr: Consensus-based Image Description Evaluation", CVPR 2015 (section 5 for the D variant). Equal
to pycocoevalcap's `Cider`, whose settings are: n-grams of order 1 to 4, counts clipped, a Gaussian penalty on length
with sigma 6, times 10. "Length" there counts bigrams.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from harness.metrics.contract import require_same_images
from harness.metrics.ngrams import MAX_ORDER, Block, Corpus, DocumentFrequencies, Ints
from results.statistics.significance import Array

SIGMA: Final = 6.0
SCALE: Final = 10.0
_SUMS_AT_ONCE: Final = 2**24  # take 128 MB
_ENTRY: Final = np.dtype(
    [("gram", "i4"), ("caption", "i4"), ("length", "i4"), ("count", "i4"), ("given", "f8"), ("norm", "f8")]
)
"""An n-gram of a reference: its count, its contribution to scores per shared occurrence, and the caption's norm."""


def mean_cider_d(references: Mapping[int, Sequence[str]], candidates: Mapping[int, str]) -> float:
    """Mean CIDEr-D of one tokenised caption per image, as a fraction (times 100 in papers).

    Document frequencies are those of the tokenised references, so that a single image scores 0.
    """
    require_same_images(references, candidates)
    if not references:
        return 0.0
    corpus = Corpus.of_texts(references, candidates)
    return float(cider_d(corpus, corpus.frequencies()).mean())


def cider_rewards(
    references: Sequence[Sequence[Sequence[int]]],
    samples: Sequence[Sequence[Sequence[int]]],
    frequencies: DocumentFrequencies,
) -> Array:
    """CIDEr-D (B, n) of n samples for each of B images; references, samples and frequencies are in token numbers."""
    return cider_d(Corpus.of_numbers(references, samples), frequencies).reshape(len(samples), -1)


def cider_d(corpus: Corpus, frequencies: DocumentFrequencies) -> Array:
    """CIDEr-D of every candidate, image by image, (N * candidates,)."""
    parts = [_of_block(block, frequencies.idf(block.counts.keys)) for block in corpus]
    return np.concatenate(parts) if parts else np.zeros(0)


def _of_block(block: Block, idf: Array) -> Array:
    counts = block.counts
    weight = counts.count * idf[counts.gram]
    caption = block.first[counts.image] + counts.slot
    cell = caption * MAX_ORDER + counts.orders[counts.gram]
    norm = np.sqrt(np.bincount(cell, weight * weight, len(block.lengths) * MAX_ORDER))
    candidate, reference = _pairs(block)

    norms = norm[cell[candidate]] * norm[cell[reference]]
    product = np.minimum(weight[candidate], weight[reference]) * weight[reference]
    similarity = np.divide(product, norms, out=np.zeros_like(product), where=norms > 0)
    length = np.maximum(block.lengths - 1, 0)
    gap = length[caption[candidate]] - length[caption[reference]]
    similarity *= np.exp(-(gap.astype(np.float64) ** 2) / (2 * SIGMA**2))
    totals = np.bincount(caption[candidate], similarity, len(block.lengths))
    candidate_rows = (block.first[:-1, None] + np.arange(block.candidates)).ravel()
    scores: Array = totals[candidate_rows] * (SCALE / MAX_ORDER) / np.repeat(block.references, block.candidates)
    return scores


def _pairs(block: Block) -> tuple[Ints, Ints]:
    """Pairs of entries in the block's counts, candidate's and reference's, with the same image and n-gram."""
    counts = block.counts
    group_starts = counts.groups
    sizes = np.diff(group_starts, append=len(counts.slot))
    of_candidate = counts.slot < block.candidates
    group = np.repeat(np.arange(len(group_starts)), sizes)
    of_candidates = np.flatnonzero(of_candidate)
    in_group = np.bincount(group[of_candidates], minlength=len(group_starts))
    first_reference = (group_starts + in_group)[group[of_candidates]]
    references = (sizes - in_group)[group[of_candidates]]
    before = np.cumsum(references) - references
    offset = np.arange(references.sum()) - np.repeat(before, references)
    return np.repeat(of_candidates, references), np.repeat(first_reference, references) + offset


def consensus_scores(references: Mapping[int, Sequence[str]]) -> Array:
    """Mean CIDEr-D (as a fraction) over all images of each reference, image by image in the order given.

    Document frequencies are those of the references; a caption's own image is included. Exact without comparing pairs
    of captions: what a reference adds to a candidate's score depends only on their shared n-grams and on the
    candidate's length, so references are summed once by n-gram and length. A candidate with an n-gram k times
    shares min(k, r) of it with a reference that has it r times: 1 if k and r are at least 1, another 1 if both are at
    least 2, and so on; each of these sums is one layer.
    """
    corpus = Corpus.of_texts(references, dict.fromkeys(references, ""))
    frequencies = corpus.frequencies()
    captions = sum(map(len, references.values()))
    entries = np.concatenate(list(_entries(corpus, frequencies)) or [np.zeros(0, _ENTRY)])
    lengths = np.unique(entries["length"])
    penalty = np.exp(-((lengths[:, None] - lengths[None, :]).astype(np.float64) ** 2) / (2 * SIGMA**2))
    scores = np.zeros(captions)
    for layer in range(1, int(entries["count"].max(initial=0)) + 1):
        shared = entries[entries["count"] >= layer]
        # Most n-grams are of one caption, which is as long as itself: nothing is summed.
        is_common = np.bincount(shared["gram"], minlength=len(frequencies.keys)) > 1
        common_number = np.cumsum(is_common) - 1
        common = is_common[shared["gram"]]
        rows = common_number[shared["gram"][common]]
        columns = np.searchsorted(lengths, shared["length"][common])
        given = shared["given"][common]
        summed = np.empty_like(given)
        rows_at_once = max(_SUMS_AT_ONCE // len(lengths), 1)
        for first in range(0, int(is_common.sum()), rows_at_once):
            part = np.flatnonzero((first <= rows) & (rows < first + rows_at_once))
            cell = (rows[part] - first) * len(lengths) + columns[part]
            by_length = np.bincount(cell, given[part], rows_at_once * len(lengths)).reshape(-1, len(lengths))
            summed[part] = (by_length @ penalty).ravel()[cell]
        contribution = shared["given"].copy()
        contribution[common] = summed
        scores += np.bincount(shared["caption"], contribution / shared["norm"], captions)
    return scores * (SCALE / MAX_ORDER / max(len(references), 1))


def _entries(corpus: Corpus, frequencies: DocumentFrequencies) -> Iterator[NDArray[np.void]]:
    """The n-grams of all references, block by block, without captions whose n-grams all have weight 0."""
    before = 0
    for block in corpus:
        counts = block.counts
        gram_number = np.searchsorted(frequencies.keys, counts.keys)
        idf = (np.log(float(frequencies.images)) - np.log(frequencies.counts[gram_number]))[counts.gram]
        weight = counts.count * idf
        with_candidates = block.first[counts.image] + counts.slot
        cell = with_candidates * MAX_ORDER + counts.orders[counts.gram]
        norm = np.sqrt(np.bincount(cell, weight * weight))[cell]
        has_weight = norm > 0
        entries = np.zeros(int(has_weight.sum()), _ENTRY)
        entries["gram"] = gram_number[counts.gram][has_weight]
        entries["caption"] = (with_candidates - counts.image - 1)[has_weight] + before
        entries["length"] = np.maximum(block.lengths - 1, 0)[with_candidates[has_weight]]
        entries["count"] = counts.count[has_weight]
        entries["given"] = (weight * idf / block.references[counts.image])[has_weight] / norm[has_weight]
        entries["norm"] = norm[has_weight]
        yield entries
        before += int(block.references.sum())
