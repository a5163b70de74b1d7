"""ROUGE-L as coco-caption computes it: best precision and best recall over the references, F with beta 1.2.

Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", 2004. Equal to pycocoevalcap's `Rouge`, which splits at
plain spaces only: "22\\u00a03/4" is one token here and two for BLEU and CIDEr-D, and an empty caption is one empty
token, which matches an empty reference.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from harness.metrics.contract import mean_of
from results.statistics.significance import Statistics

BETA: Final = 1.2


def rouge_l(references: Mapping[int, Sequence[str]], candidates: Mapping[int, str]) -> Statistics:
    """ROUGE-L of one tokenised caption per image, in the references' order."""
    scores = [_score(candidates[image_id].split(" "), texts) for image_id, texts in references.items()]
    return mean_of("ROUGE-L", np.array(scores, dtype=np.float64))


def _score(candidate: list[str], references: Sequence[str]) -> float:
    positions: dict[str, int] = {}
    for index, token in enumerate(candidate):
        positions[token] = positions.get(token, 0) | 1 << index
    precision = recall = 0.0
    for text in references:
        reference = text.split(" ")
        common = _common_subsequence(positions, len(candidate), reference)
        precision = max(precision, common / len(candidate))
        recall = max(recall, common / len(reference))
    if precision == 0 or recall == 0:
        return 0.0
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def _common_subsequence(positions: Mapping[str, int], length: int, reference: Sequence[str]) -> int:
    """Length of the longest common subsequence, by one bit per candidate token (Hyyrö 2004)."""
    row = all_bits = (1 << length) - 1
    for token in reference:
        matched = row & positions.get(token, 0)
        row = ((row + matched) | (row - matched)) & all_bits
    return length - row.bit_count()
