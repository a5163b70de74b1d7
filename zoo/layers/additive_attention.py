"""Additive attention of one query per row to the regions of its image.

D. Bahdanau, K. Cho, Y. Bengio: "Neural Machine Translation by Jointly Learning to Align and Translate", ICLR 2015;
over image regions as in K. Xu et al. 2015, S. J. Rennie et al. 2017 and P. Anderson et al. 2018.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.precision import autocasts


class AdditiveAttention(nn.Module):
    """softmax(w . tanh(W_k a + W_q h)) V over the valid regions a.

    ImageCaptioning.pytorch masks and normalises again after a softmax over all regions, which equals the softmax over
    the valid ones; this form is also stable if padding has much higher scores than all others.
    """

    def __init__(self, d_query: int, d_regions: int, d_attention: int) -> None:
        super().__init__()
        self.query = nn.Linear(d_query, d_attention)
        self.key = nn.Linear(d_regions, d_attention)
        self.score = nn.Linear(d_attention, 1)

    def project(self, regions: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Project an image once: keys (B, L, A), and an attention bias (B, 1, L) to be added to the scores.

        `regions` are (B, L, D), `mask` (B, L) is true where valid. The keys contain all biases, so queries add none.
        That of the scores is the same for all, so that the softmax cancels it: it enters with its gradient of zero.
        """
        bias = self.key.bias + self.query.bias + 0 * self.score.bias
        keys = 2 * F.linear(regions, self.key.weight, bias)
        # The lowest number, not minus infinity: an image without valid regions attends to all of them evenly.
        lowest = torch.finfo(self.score.weight.dtype).min
        attention_bias = torch.zeros_like(mask, dtype=self.score.weight.dtype).masked_fill_(~mask, lowest)
        return keys, attention_bias[:, None]

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, attention_bias: Tensor) -> Tensor:
        """What each query attends to, (B * n, D_v).

        Args:
            queries: (B * n, D_q); the n rows of an image are adjacent and share its keys.
            keys: from `project`.
            values: (B, L, D_v).
            attention_bias: from `project`, of images or repeated for their rows, (B * n, 1, L).
        """
        projected = F.linear(queries, self.query.weight).view(keys.shape[0], -1, 1, keys.shape[2])
        # tanh(x) = 2 sigmoid(2 x) - 1. On CPUs a sigmoid takes a sixth of tanh's time, and the softmax is
        # invariant to a constant in all scores.
        waves, weight = torch.sigmoid(torch.add(keys[:, None], projected, alpha=2)), self.score.weight.view(-1)
        if len(attention_bias) == len(queries) and not autocasts(waves):  # it would round the bias to minus infinity
            scores = torch.addmv(attention_bias.view(-1), waves.flatten(0, 2), weight, alpha=2).view(waves.shape[:-1])
        else:
            scores = torch.add(attention_bias.view(len(keys), -1, keys.shape[1]), waves @ weight, alpha=2)
        weights = scores.softmax(-1).to(values.dtype)
        return torch.bmm(weights, values).flatten(0, 1)
