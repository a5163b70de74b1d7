"""One round of convolution over a scene graph of regions, relations and attributes.

X. Yang, K. Tang, H. Zhang, J. Cai: "Auto-Encoding Scene Graphs for Image Captioning", CVPR 2019, as in their released
code.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


def relu_layer(d_input: int, d_model: int, dropout: float) -> nn.Sequential:
    """A linear layer, a ReLU, and dropout."""
    return nn.Sequential(nn.Linear(d_input, d_model), nn.ReLU(), nn.Dropout(dropout))


class ImageGraph(nn.Module):
    """Regions are averaged with what their relations tell them; relations and attributed regions become nodes too.

    Args:
        d_embedding: of the words; d_model: of the nodes.
        dropout: behind every ReLU.
    """

    def __init__(self, d_embedding: int, d_model: int, dropout: float) -> None:
        super().__init__()
        self.word = relu_layer(d_embedding, d_model, dropout)
        self.to_subject = relu_layer(3 * d_model, d_model, dropout)
        self.to_object = relu_layer(3 * d_model, d_model, dropout)
        self.to_relation = relu_layer(3 * d_model, d_model, dropout)
        self.to_attribute = relu_layer(2 * d_model, d_model, dropout)

    def forward(
        self, regions: Tensor, mask: Tensor, relations: Tensor, attributes: Tensor, embed: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Nodes (B, N + M + P, D) in the order of regions, relations and attributes, and their mask, true where valid.

        Args:
            regions: (B, N, D); mask: (B, N), true where valid.
            relations: (B, M, 3), attributes: (B, P, 1 + a), -1 where padded, see `SGAE.encode_graph`.
            embed: words to vectors (..., E). An attribute row without words is no node.
        """
        related = (relations >= 0).all(-1)
        subject, obj, label = relations.clamp(min=0).unbind(-1)
        predicate = self.word(embed(label))
        triple = torch.cat((take_nodes(regions, subject), take_nodes(regions, obj), predicate), -1)
        weight = related[..., None].to(regions.dtype)
        width = regions.shape[-1]
        summed, count = regions, torch.ones_like(regions[..., :1])
        for place, told in ((subject, self.to_subject(triple)), (obj, self.to_object(triple))):
            summed = summed.scatter_add(1, place[..., None].expand(-1, -1, width), told * weight)
            count = count.scatter_add(1, place[..., None], weight)
        said = (attributes[..., 1:] >= 0) & (attributes[..., :1] >= 0)
        words = self.word(embed(attributes[..., 1:].clamp(min=0)))
        owner = take_nodes(regions, attributes[..., 0].clamp(min=0))[:, :, None].expand_as(words)
        described = self.to_attribute(torch.cat((words, owner), -1)) * said[..., None]
        described = described.sum(2) / said.sum(2).clamp(min=1)[..., None]
        nodes = torch.cat((summed / count, (predicate + self.to_relation(triple)) / 2, described), 1)
        return nodes, torch.cat((mask, related, said.any(2)), 1)


def take_nodes(nodes: Tensor, places: Tensor) -> Tensor:
    """Vectors (B, N, D) of nodes at `places` (B, M)."""
    return nodes.gather(1, places[..., None].expand(-1, -1, nodes.shape[-1]))
