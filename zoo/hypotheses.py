"""Captions that a search found for a batch of images."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Hypotheses:
    """W captions for each of B images.

    tokens: (B, W, max_len) long, without the begin token, end token kept, then zeros; log_probs: (B, W, max_len) of
    each token, then zeros; lengths: (B, W), end token counted; scores: (B, W), sum of log-probabilities over
    length ** length_penalty. Best first, except for samples, which stay as drawn.
    """

    tokens: Tensor
    log_probs: Tensor
    lengths: Tensor
    scores: Tensor

    def joined(self, others: Hypotheses) -> Hypotheses:
        """These and `others`, image by image."""
        pairs = ((getattr(self, part.name), getattr(others, part.name)) for part in fields(Hypotheses))
        return Hypotheses(*(torch.cat(pair, 1) for pair in pairs))

    def best(self, width: int) -> Hypotheses:
        """The `width` best of each image, best first; the earlier on a tie."""
        scores, order = self.scores.sort(dim=1, descending=True, stable=True)
        order = order[:, :width]
        return Hypotheses(
            self.tokens.gather(1, order[..., None].expand(-1, -1, self.tokens.shape[2])),
            self.log_probs.gather(1, order[..., None].expand(-1, -1, self.tokens.shape[2])),
            self.lengths.gather(1, order),
            scores[:, :width],
        )
