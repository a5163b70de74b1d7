"""Training objectives: what a stage makes smaller."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch.nn.functional as F
from torch import Tensor

from harness.data.batches import Batch
from harness.data.vocabulary import PAD
from harness.training.schedule import Stage
from zoo import Captioner


class Objective(Protocol):
    """The loss of a batch: a mean over what `weight` counts, so that a batch may be worked through in parts."""

    def __call__(self, model: Captioner, batch: Batch) -> Tensor:
        """The loss, a scalar with a graph; the batch lies on the model's device."""
        ...

    def weight(self, batch: Batch) -> float:
        """What the loss is a mean over."""
        ...


@dataclass(frozen=True, slots=True)
class CrossEntropy:
    """Teacher forcing: the mean cross-entropy over all words of a batch."""

    stage: Stage
    pad: int = PAD

    def __call__(self, model: Captioner, batch: Batch) -> Tensor:
        """See `cross_entropy`."""
        logits = model(batch.visual, batch.tokens[:, :-1])
        return cross_entropy(logits, batch.tokens, self.stage.label_smoothing, self.pad)

    def weight(self, batch: Batch) -> float:
        """Words to predict."""
        return float((batch.tokens[:, 1:] != self.pad).sum())


def cross_entropy(logits: Tensor, tokens: Tensor, label_smoothing: float = 0.0, pad: int = PAD) -> Tensor:
    """Mean cross-entropy over all words of a batch, padding left out.

    Args:
        logits: (R, T, V), position t predicting token t + 1.
        tokens: (R, T + 1), begin token first, right-padded.
        label_smoothing: share of the target spread evenly over the vocabulary (Szegedy et al. 2016).
        pad: the padding's number.
    """
    return F.cross_entropy(
        logits.flatten(0, 1).float(), tokens[:, 1:].flatten(), ignore_index=pad, label_smoothing=label_smoothing
    )
