"""Training objectives."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from harness.data.vocabulary import PAD


def cross_entropy(logits: Tensor, tokens: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Mean cross-entropy over all words of a batch, padding left out.

    Args:
        logits: (R, T, V), position t predicting token t + 1.
        tokens: (R, T + 1), begin token first, right-padded.
        label_smoothing: share of the target spread evenly over the vocabulary (Szegedy et al. 2016).
    """
    return F.cross_entropy(
        logits.flatten(0, 1).float(),
        tokens[:, 1:].flatten(),
        ignore_index=PAD,
        label_smoothing=label_smoothing,
    )
