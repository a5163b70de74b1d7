"""BLEU, ROUGE-L and CIDEr-D by pycocoevalcap's own scorers, without its drivers.

`COCOEvalCap` is not used: its constructor wants SPICE's models from the network, and one failing metric takes all
others along.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from pycocoevalcap.bleu.bleu_scorer import BleuScorer
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

BLEU_ORDER: Final = 4


class Bleu:
    """BLEU-1 to 4 of one system, "closest" reference length as in coco-caption.

    Args:
        references: tokenised references by image id.
        candidates: one tokenised caption per image, same ids.
    """

    def __init__(self, references: Mapping[int, Sequence[str]], candidates: Mapping[int, str]) -> None:
        scorer = BleuScorer(n=BLEU_ORDER)
        for image_id, caption in candidates.items():
            scorer += (caption, references[image_id])
        self._counts = dict(zip(candidates, zip(scorer.ctest, scorer.crefs, strict=True), strict=True))

    def score(self, image_ids: Iterable[int]) -> tuple[list[float], list[list[float]]]:
        """Corpus BLEU-1..4 over these images, and for each order the values per image (in the ids' order)."""
        scorer = BleuScorer(n=BLEU_ORDER)
        for image_id in image_ids:
            test, reference = self._counts[image_id]
            scorer.ctest.append(test)
            scorer.crefs.append(reference)
        corpus, per_image = scorer.compute_score(option="closest", verbose=0)
        return corpus, per_image


def rouge_l(references: Mapping[int, Sequence[str]], candidates: Mapping[int, str]) -> dict[int, float]:
    """ROUGE-L (F with beta 1.2) per image of tokenised captions; a corpus's score is the mean."""
    rouge = Rouge()
    return {
        image_id: float(rouge.calc_score([caption], references[image_id])) for image_id, caption in candidates.items()
    }


def cider_d(references: Mapping[int, Sequence[str]], candidates: Mapping[int, str]) -> dict[int, float]:
    """CIDEr-D per image, document frequencies over all of `references`; a corpus's score is the mean.

    References without a single word, which the original cannot score, give 0.
    """
    if not any(text.split() for texts in references.values() for text in texts):
        return dict.fromkeys(candidates, 0.0)
    ids = list(candidates)
    _, scores = Cider().compute_score(
        {image_id: list(references[image_id]) for image_id in ids},
        {image_id: [candidates[image_id]] for image_id in ids},
    )
    return dict(zip(ids, np.asarray(scores, dtype=np.float64).tolist(), strict=True))
