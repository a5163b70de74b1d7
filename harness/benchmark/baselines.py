"""Reference rows that need no training: where the human level lies, and what copying a caption earns.

People's captions are the references themselves: `harness.benchmark.scoring.score_people` scores them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from harness.config.evaluation import TokenizerName
from harness.data.dataset import Sample
from harness.data.regions.features import VisualFeatures
from harness.metrics.cider import consensus_scores
from harness.metrics.ptb import python_tokenizer, tokenize_by_image

Rows = NDArray[np.float32]
TIE = 1e-12  # scores this near to each other differ by rounding alone

REFERENCE_ROWS = {
    "human": "each reference caption of an image in turn, scored against the others: the mean",
    "retrieval": "the first caption of the nearest training image by pooled features (cosine)",
    "majority": "the one training caption that scores best (CIDEr-D) as the caption of every training image",
}


def retrieved_captions(
    samples: Sequence[Sample], train: Sequence[Sample], features: VisualFeatures, block: int = 256
) -> dict[int, str]:
    """Give each image the first caption of its nearest training image; ties go to the earlier one."""
    index = _unit_rows(features.pooled([sample.image_id for sample in train]))
    captions: dict[int, str] = {}
    for start in range(0, len(samples), block):
        part = samples[start : start + block]
        nearest = (_unit_rows(features.pooled([sample.image_id for sample in part])) @ index.T).argmax(axis=1)
        captions.update(
            (sample.image_id, train[nearest_index].captions[0])
            for sample, nearest_index in zip(part, nearest.tolist(), strict=True)
        )
    return captions


def majority_caption(train: Sequence[Sample], tokenizer: TokenizerName = "python") -> str:
    """The training caption with the highest mean CIDEr-D against all training images.

    Of several captions that score alike, the first by its tokens is taken, as the first image has it.
    """
    tokens = tokenize_by_image({sample.image_id: sample.captions for sample in train}, python_tokenizer(tokenizer))
    scores = consensus_scores(tokens)
    written = [caption for sample in train for caption in sample.captions]
    tokenized = [text for texts in tokens.values() for text in texts]
    return written[min(np.flatnonzero(scores >= scores.max() - TIE).tolist(), key=tokenized.__getitem__)]


def _unit_rows(rows: Rows) -> Rows:
    """Rows scaled to length one; rows of zeros stay zero."""
    unit: Rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return unit
