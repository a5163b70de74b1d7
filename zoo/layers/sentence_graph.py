"""One round of convolution over the scene graph of a sentence, whose objects are words.

X. Yang, K. Tang, H. Zhang, J. Cai: "Auto-Encoding Scene Graphs for Image Captioning", CVPR 2019, as in their released
code, less a layer of it that no output depends on (`ssg_obj_attr_fc`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from zoo.layers.image_graph import relu_layer, take_nodes


class SentenceGraph(nn.Module):
    """Objects averaged with what their relations tell them; relations and the attributes of an object are nodes too.

    Everything is computed from the vectors of words, where `ImageGraph` has those of regions.

    Args:
        d_embedding: of the words; d_model: of the nodes.
        dropout: behind every ReLU.
    """

    def __init__(self, d_embedding: int, d_model: int, dropout: float) -> None:
        super().__init__()
        self.object = relu_layer(d_embedding, d_model, dropout)
        self.to_subject = relu_layer(3 * d_embedding, d_model, dropout)
        self.to_object = relu_layer(3 * d_embedding, d_model, dropout)
        self.to_relation = relu_layer(3 * d_embedding, d_model, dropout)
        self.to_attribute = relu_layer(2 * d_embedding, d_model, dropout)

    def forward(
        self, objects: Tensor, attributes: Tensor, relations: Tensor, embed: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Nodes (B, N + M + N, D) of objects, relations, and objects with attributes; their mask, true where valid.

        Args:
            objects: (B, N), attributes: (B, N, a), relations: (B, M, 3), -1 where padded, see
                `SGAE.encode_sentence_graph`. An object without attributes has no node of them.
            embed: words to vectors (..., E).
        """
        named, related = objects >= 0, (relations >= 0).all(-1)
        subject, obj, label = relations.clamp(min=0).unbind(-1)
        words = embed(objects.clamp(min=0))
        triple = torch.cat((take_nodes(words, subject), take_nodes(words, obj), embed(label.clamp(min=0))), -1)
        weight = related[..., None].to(words.dtype)
        summed = self.object(words)
        width, count = summed.shape[-1], torch.ones_like(summed[..., :1])
        for place, told in ((subject, self.to_subject(triple)), (obj, self.to_object(triple))):
            summed = summed.scatter_add(1, place[..., None].expand(-1, -1, width), told * weight)
            count = count.scatter_add(1, place[..., None], weight)
        said = attributes >= 0
        described = embed(attributes.clamp(min=0))
        described = self.to_attribute(torch.cat((words[:, :, None].expand_as(described), described), -1))
        described = (described * said[..., None]).sum(2) / said.sum(2).clamp(min=1)[..., None]
        nodes = torch.cat((summed / count, self.to_relation(triple), described), 1)
        return nodes, torch.cat((named, related, said.any(2)), 1)
