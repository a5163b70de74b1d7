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

    ImageCaptioning.pytorch normalises again after a softmax over all regions, which equals the softmax over the valid
    ones; this form is also stable where padding has much higher scores than valid regions.
    """

    def __init__(self, d_query: int, d_regions: int, d_attention: int) -> None:
        super().__init__()
        self.query = nn.Linear(d_query, d_attention)
        self.key = nn.Linear(d_regions, d_attention)
        self.score = nn.Linear(d_attention, 1)

    def project(self, regions: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """The keys (B, L, A) of an image's regions (B, L, D), and an attention bias (B, 1, L) for their scores.

        `mask` (B, L) is true at valid regions. The keys contain all biases, so that queries add none. The softmax
        cancels the bias of the scores: it is added times zero, so that it has a gradient of zero.
        """
        bias = self.key.bias + self.query.bias + 0 * self.score.bias
        keys = 2 * F.linear(regions, self.key.weight, bias)
        # The lowest number, not minus infinity: an image without valid regions attends to all of them evenly.
        lowest = torch.finfo(self.score.weight.dtype).min
        attention_bias = torch.zeros_like(mask, dtype=self.score.weight.dtype).masked_fill_(~mask, lowest)
        return keys, attention_bias[:, None]

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, attention_bias: Tensor) -> Tensor:
        """The weighted sum of the values for each query, (B * n, D_v).

        Args:
            queries: (B * n, D_q); the n rows of an image are adjacent and share its keys.
            keys: from `project`.
            values: (B, L, D_v).
            attention_bias: from `project`, with one row per image or repeated for its rows, (B * n, 1, L).
        """
        projected = F.linear(queries, self.query.weight).view(keys.shape[0], -1, 1, keys.shape[2])
        # tanh(x) = 2 sigmoid(2 x) - 1, and the softmax ignores the constant. On CPUs a sigmoid takes a sixth of the
        # time of tanh. `project` doubles the keys.
        hidden = torch.sigmoid(torch.add(keys[:, None], projected, alpha=2))
        weight = self.score.weight.view(-1)
        if len(attention_bias) == len(queries) and not autocasts(hidden):  # autocast would round the bias to -inf
            scores = torch.addmv(attention_bias.view(-1), hidden.flatten(0, 2), weight, alpha=2)
            scores = scores.view(hidden.shape[:-1])
        else:
            scores = torch.add(attention_bias.view(len(keys), -1, keys.shape[1]), hidden @ weight, alpha=2)
        weights = scores.softmax(-1).to(values.dtype)
        return torch.bmm(weights, values).flatten(0, 1)
