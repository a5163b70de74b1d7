"""Rules for what may follow a prefix in beam search, as papers' decoding has them; by default there are none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from zoo.errors import ZooError

_TRIGRAM = 3


@dataclass(frozen=True, slots=True)
class SearchRules:
    """What a prefix forbids, or makes less probable, as its next token.

    Both are options of Luo's ImageCaptioning.pytorch and of the code that builds on it.

    Attributes:
        bad_endings: tokens after which a caption cannot end, such as articles.
        trigram_penalty: taken off the log-probability of a token once for every earlier place of the caption with the
            trigram that it would make; in their code 2 ln 2. A large one forbids.
    """

    bad_endings: tuple[int, ...] = ()
    trigram_penalty: float = 0.0

    def check(self, vocab_size: int) -> None:
        """ZooError for tokens outside the vocabulary, and for a penalty below 0."""
        if not all(0 <= token < vocab_size for token in self.bad_endings):
            raise ZooError(f"bad_endings {list(self.bad_endings)} must be entries of the vocabulary of {vocab_size}")
        if not 0 <= self.trigram_penalty < torch.inf:
            raise ZooError(f"trigram_penalty must be 0 or more, not {self.trigram_penalty:g}")

    def apply(self, log_probs: Tensor, prefixes: Sequence[Tensor], eos: int) -> Tensor:
        """Log-probabilities (R, V) of the next token under the rules.

        Args:
            log_probs: (R, V), which may be changed in place.
            prefixes: the tokens (R) of every position so far, the latest last.
            eos: the end token.
        """
        if self.bad_endings:
            banned = torch.tensor(self.bad_endings, device=log_probs.device)
            log_probs[:, eos] = log_probs[:, eos].masked_fill(torch.isin(prefixes[-1], banned), -torch.inf)
        if self.trigram_penalty and len(prefixes) >= _TRIGRAM:
            first, second, third = torch.stack(tuple(prefixes), 1).unfold(1, _TRIGRAM, 1).unbind(-1)  # (R, T - 2) each
            again = (first == prefixes[-2][:, None]) & (second == prefixes[-1][:, None])
            log_probs = log_probs.scatter_add(1, third, again.to(log_probs.dtype) * -self.trigram_penalty)
        return log_probs
