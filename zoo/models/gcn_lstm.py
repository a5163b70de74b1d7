"""GCN-LSTM: graph convolution over related regions, below an attention LSTM and a language LSTM.

T. Yao, Y. Pan, Y. Li, T. Mei: "Exploring Visual Relationship for Image Captioning", ECCV 2018 (arXiv:1809.07041). No
code came with the paper. Numerically equal to `GCN-LSTM` of https://github.com/YehLi/xmodaler (Apache-2.0), a later
library by a co-author, whose input includes the labels of edges; those of boxes follow other codes, see `N_LABELS`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import Memory, Visual, VisualSpec
from zoo.converter import Converter, Tensors, convert_attention_lstm, convert_lstm, lstm_names
from zoo.errors import ZooError, check_choice
from zoo.layers.lstm import STATES, LSTMCell, two_lstms
from zoo.layers.pooling import mean_of_valid
from zoo.recurrent import RecurrentCaptioner, Rows


class RelationGraph(nn.Module):
    """x_i = dropout(relu(v_i + sigmoid(w_l v_i + b_l) (W_l v_i + c_l) + sums over the edges of region i)).

    Over each edge with label r from i to j, region i receives sigmoid(w_s v_j + g_r) (W_s v_j + B_r), and region j
    receives sigmoid(w_o v_i + g_r) (W_o v_i + B_r); gates are scalars.

    Args:
        dim: D, of the regions.
        n_labels: labels of edges, with 0 for none; 1 for a graph without edges.
        dropout: of the result.
        identity: whether v_i itself is added, as in the released code.
    """

    def __init__(self, dim: int, n_labels: int, dropout: float, *, identity: bool = True) -> None:
        super().__init__()
        self.identity = identity
        self.loop = nn.Linear(dim, dim)
        self.loop_gate = nn.Linear(dim, 1)
        self.connected = n_labels > 1
        if self.connected:
            self.forth = nn.Linear(dim, dim, bias=False)
            self.forth_gate = nn.Linear(dim, 1, bias=False)
            self.back = nn.Linear(dim, dim, bias=False)
            self.back_gate = nn.Linear(dim, 1, bias=False)
            self.label_bias = nn.Parameter(torch.zeros(n_labels, dim))
            self.label_gate = nn.Parameter(torch.zeros(n_labels, 1))
        self.dropout = nn.Dropout(dropout)

    def forward(self, regions: Tensor, relations: Tensor) -> Tensor:
        """Regions (B, N, D) to the same; `relations` (B, N, N) int64 has the labels of the edges from i to j."""
        x = self.loop_gate(regions).sigmoid() * self.loop(regions)
        if self.identity:
            x = x + regions
        if self.connected:
            gates = F.embedding(relations, self.label_gate)[..., 0]
            all_labels = torch.arange(len(self.label_gate), device=relations.device)
            labels = (relations[..., None] == all_labels).to(regions.dtype)
            x = x + self._received(regions, gates, labels, self.forth, self.forth_gate)
            gates = gates.transpose(1, 2)
            labels = labels.transpose(1, 2)
            x = x + self._received(regions, gates, labels, self.back, self.back_gate)
        convolved: Tensor = self.dropout(x.relu())
        return convolved

    def _received(self, regions: Tensor, gates: Tensor, labels: Tensor, layer: nn.Linear, gate: nn.Linear) -> Tensor:
        """The sums over edges (B, N, D): each region (rows) receives from all others (columns)."""
        weights = (gates + gate(regions).transpose(1, 2)).sigmoid() * (1 - labels[..., 0])
        by_label = (weights[..., None] * labels).sum(2)
        received: Tensor = weights @ layer(regions) + by_label @ self.label_bias
        return received


def label_matrix(relations: Tensor, count: int) -> Tensor:
    """Labels (B, N, N) of the edges from i to j, 0 for none, of relations (B, M, 3), -1 where padded; `count` is N.

    If an ordered pair has several relations, the highest label is used.
    """
    valid = (relations >= 0).all(-1)
    subject, obj, label = relations.clamp(min=0).unbind(-1)
    labels = relations.new_zeros(relations.shape[0], count * count)
    labels = labels.scatter_reduce(1, (subject * count + obj) * valid, label * valid, "amax")
    return labels.view(-1, count, count)


N_LABELS = 12
"""Number of labels of edges between boxes, as in two later repositories, since the paper's code was not released.

The label of the edge from box i to box j: 1 if j is inside i, 2 if j is around i, 3 if their intersection is at least
half of their union, 4 to 11 for the octant of the direction from j to i if their centres are not farther apart than
half of the picture's diagonal, and 0 for no edge.
"""
N_REGAT_LABELS = 13
_OVERLAP = 0.5
_NEAR = 0.5


def spatial_labels(boxes: Tensor, diagonal: float) -> Tensor:
    """Labels (B, N, N) int64 of edges between boxes (see `N_LABELS`): the first that applies, and 0 on the diagonal.

    A box is inside another if none of its sides is outside, and they are not the same. Octants are 45 degrees wide,
    clockwise from the direction to the right, and include their upper bound; the reverse edge has the opposite octant.
    Boxes with the same centre have no direction and, unless another label applies, no edge.

    Args:
        boxes: (B, N, 4), x1, y1, x2, y2 in one unit.
        diagonal: of the picture, in the same unit.
    """
    dx, dy = _offsets(boxes).unbind(-1)
    upper = (dy > 0) | ((dy == 0) & (dx < 0))
    across = torch.where(upper, dx, -dx)
    down = torch.where(upper, dy, -dy)
    octant = 1 + (down > across).long() + (across < 0).long() + (down < -across).long() + 4 * (~upper).long()
    distance = (dx.square() + dy.square()).sqrt()
    near = (distance <= _NEAR * diagonal) & (distance > 0)
    low = boxes[..., :2]
    high = boxes[..., 2:]
    within = (low[:, None] >= low[:, :, None]).all(-1) & (high[:, None] <= high[:, :, None]).all(-1)
    same = within & within.transpose(1, 2)
    diagonal_mask = torch.eye(boxes.shape[1], dtype=torch.bool, device=boxes.device)
    labels = _labels(within & ~same, _overlaps(boxes, 0.0) >= _OVERLAP, torch.where(near, octant + 3, 0))
    return labels.masked_fill(diagonal_mask, 0)


def regat_labels(boxes: Tensor, diagonal: float) -> Tensor:
    """Labels of ReGAT's released code (https://github.com/linjieli222/VQA_ReGAT, MIT), including its faults.

    A box is inside another if it touches no side of it, sides are a pixel longer in overlaps, and boxes as far apart as
    half of the diagonal have no edge. For i < j the edge from i has the octant of the angle of their centres, but 8 and
    9 are exchanged, and an angle of 0 has label 3; the reverse edge has the mirrored octant instead of the opposite one
    if box i is the lower one. Each box has an edge with label 12 to itself; a box of zeros has no edge. Boxes with the
    same centre, for which the code divides by zero, have no edge here.

    Args:
        boxes: (B, N, 4), x1, y1, x2, y2 in pixels.
        diagonal: of the picture, in pixels; the code infers it from the first box.

    Returns:
        (B, N, N) int64.
    """
    dx, dy = _offsets(boxes).unbind(-1)
    distance = (dx.square() + dy.square()).sqrt()
    sine = dy / distance
    cosine = dx / distance
    below = torch.where(dx >= 0, sine.arcsin() + 2 * math.pi, 2 * math.pi - sine.arccos())
    angle = torch.where(dy < 0, below, torch.where(dx >= 0, sine.arcsin(), cosine.arccos()))
    reverse = torch.where(dy < 0, angle - math.pi, 2 * math.pi - angle)
    first = torch.ones_like(dx, dtype=torch.bool).triu(1)
    angle = torch.where(first, angle, reverse.transpose(1, 2))
    near = (distance < _NEAR * diagonal) & (distance > 0)
    octant = torch.where(near, (angle / (math.pi / 4)).ceil() + 3, 0).long()
    low = boxes[..., :2]
    high = boxes[..., 2:]
    within = (low[:, None] > low[:, :, None]).all(-1) & (high[:, None] < high[:, :, None]).all(-1)
    labels = _labels(within, _overlaps(boxes, 1.0) >= _OVERLAP, octant)
    diagonal_mask = torch.eye(boxes.shape[1], dtype=torch.bool, device=boxes.device)
    not_zero = boxes.any(-1)
    return labels.masked_fill(diagonal_mask, N_LABELS) * (not_zero[:, None] & not_zero[:, :, None])


def _offsets(boxes: Tensor) -> Tensor:
    """Centre of i less centre of j, (B, N, N, 2)."""
    centres = (boxes[..., :2] + boxes[..., 2:]) / 2
    return centres[:, :, None] - centres[:, None]


def _overlaps(boxes: Tensor, longer: float) -> Tensor:
    """Intersection over union (B, N, N) of boxes whose sides are `longer` by this length; 0 for boxes without area."""
    low = torch.maximum(boxes[:, :, None, :2], boxes[:, None, :, :2])
    high = torch.minimum(boxes[:, :, None, 2:], boxes[:, None, :, 2:])
    shared = (high - low + longer).clamp(min=0).prod(-1)
    area = (boxes[..., 2:] - boxes[..., :2] + longer).prod(-1)
    union = area[:, :, None] + area[:, None] - shared
    return torch.where(union > 0, shared / union, 0.0)


def _labels(within: Tensor, overlapping: Tensor, octant: Tensor) -> Tensor:
    """1 to 3 where j is inside, around or overlapping i, else the octant's label; `within` at i, j: j is inside i."""
    overlap = torch.where(overlapping, 3, octant)
    return torch.where(within, 1, torch.where(within.transpose(1, 2), 2, overlap))


_LABELS = {"spatial": N_LABELS, "regat": N_REGAT_LABELS, "given": 21, "none": 1}
"""Number of labels by graph; of "given" that of the paper's semantic graph, 20 predicates and 0 for no edge."""


class DroppedAttention(nn.Module):
    """The sum of the valid regions a, weighted by softmax(w . dropout(tanh(W_k a + b + W_q h)))."""

    def __init__(self, d_query: int, d_regions: int, d_attention: int, dropout: float) -> None:
        super().__init__()
        self.query = nn.Linear(d_query, d_attention, bias=False)
        self.key = nn.Linear(d_regions, d_attention)
        self.score = nn.Linear(d_attention, 1, bias=False)
        self.dropout = nn.Dropout(dropout)

    def project(self, regions: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Keys (B, L, A) of an image, and an attention bias (B, 1, L) for the scores; `mask` is true where valid."""
        # The lowest number, not minus infinity: an image without valid regions attends to all of them evenly.
        lowest = torch.finfo(regions.dtype).min
        attention_bias = torch.zeros_like(mask, dtype=regions.dtype).masked_fill_(~mask, lowest)
        return self.key(regions), attention_bias[:, None]

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor, attention_bias: Tensor) -> Tensor:
        """Queries (B * n, D_q), the n rows of an image adjacent, and values (B, L, D_v) to (B * n, D_v)."""
        projected = self.query(queries).view(keys.shape[0], -1, 1, keys.shape[2])
        scores = self.dropout((keys[:, None] + projected).tanh()) @ self.score.weight.view(-1)
        weights = (scores + attention_bias).softmax(-1)
        return torch.bmm(weights, values).flatten(0, 1)


class GCNLSTM(RecurrentCaptioner):
    """Regions convolved along the edges of a graph; then as Up-Down, on the regions' own channels.

    Args:
        d_model: of both LSTMs.
        dropout: of convolved regions, words, the attention's tanh layer, the inputs of the language LSTM, and before
            the logits.
        graph: labels of edges. "spatial" computes those of `spatial_labels` from boxes, "regat" those of ReGAT's code,
            whose faults depend on the order of the regions; "none" has no edges. "given" uses the relations of a scene
            graph, a semantic graph.
        n_labels: number of labels including 0; that of `graph` if not given.
        picture: width and height to which boxes in [0, 1] are scaled.
        identity: whether a region itself is added to its sums over edges, as in the released code; False is the paper's
            equation.
        quirks: reproduce a fault of the released code: padding is part of the graph and of the mean.
    """

    per_row = ("image",)
    states = STATES

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int,
        d_model: int = 1024,
        dropout: float = 0.5,
        max_len: int = 20,
        d_embedding: int | None = None,
        d_attention: int = 512,
        graph: Literal["spatial", "regat", "given", "none"] = "spatial",
        n_labels: int | None = None,
        picture: Sequence[int] = (500, 500),
        identity: bool = True,
        quirks: bool = False,
    ) -> None:
        visual = VisualSpec("regions", visual_dim, graph="labels" if graph == "given" else "none")
        super().__init__(visual, vocab_size, max_len, d_model)
        check_choice("graph", graph, _LABELS)
        min_labels = 1 if graph == "given" else _LABELS[graph]
        if n_labels is not None and n_labels < min_labels:
            raise ZooError(f"n_labels must be at least {min_labels} with graph={graph!r}, not {n_labels}")
        if len(picture) != 2 or min(picture) < 1:
            raise ZooError(f"picture must be a width and a height in pixels, not {picture}", "for example 640,480")
        self.graph = graph
        self.picture = tuple(picture)
        self.quirks = quirks
        d_embedding = d_embedding or d_model
        self.convolution = RelationGraph(visual_dim, n_labels or _LABELS[graph], dropout, identity=identity)
        self.embedding = nn.Sequential(nn.Embedding(vocab_size, d_embedding), nn.ReLU(), nn.Dropout(dropout))
        self.lstm = LSTMCell(d_embedding, d_model, 2 * d_model)
        self.image_gates = nn.Linear(visual_dim, 4 * d_model, bias=False)
        self.matrices_in = {"image_gates": 4}
        nn.init.uniform_(self.image_gates.weight, -(d_model**-0.5), d_model**-0.5)
        self.attention = DroppedAttention(d_model, visual_dim, d_attention, dropout)
        self.language_dropout = nn.Dropout(dropout)
        self.language_lstm = LSTMCell(visual_dim + d_model, d_model, d_model)
        self.output_dropout = nn.Dropout(dropout)
        self.vocabulary = nn.Linear(d_model, vocab_size)

    def encode(self, visual: Visual) -> Memory:
        features, mask = self.valid_features(visual)
        return self.encode_graph(features, mask, self._relations(visual, features))

    def encode_graph(self, features: Tensor, mask: Tensor, relations: Tensor) -> Memory:
        """Encode regions with any labels of edges, for example of a semantic graph.

        Args:
            features: (B, N, C).
            mask: (B, N), true where valid.
            relations: (B, N, N) int64, the label of the edge from region i to region j, 0 for none; below `n_labels`.
        """
        if self.quirks:
            regions = self.convolution(features, relations)
            mean = regions.mean(1)
        else:
            pairs = mask[:, None] & mask[:, :, None]
            regions = self.convolution(features, relations * pairs) * mask[..., None]
            mean = mean_of_valid(regions, mask)
        keys, attention_bias = self.attention.project(regions, mask)
        image = F.linear(mean, self.image_gates.weight, self.lstm.both_biases())
        return Memory(
            regions, mask, {"keys": keys, "values": regions, "attention_bias": attention_bias, "image": image}
        )

    def _relations(self, visual: Visual, features: Tensor) -> Tensor:
        """The labels (B, N, N) of the model's kind of graph."""
        boxes = visual.boxes
        if self.graph == "none":
            images, count = features.shape[:2]
            return features.new_zeros(images, count, count, dtype=torch.long)
        if self.graph == "given":
            if visual.relations is None:
                raise ZooError(
                    "this model needs the relations of a scene graph, but the input has none",
                    "set relations, or create the model with graph='spatial'",
                )
            return label_matrix(visual.relations, features.shape[1])
        if boxes is None:
            raise ZooError("this model needs the boxes of the regions for its graph, but the input has none")
        width, height = self.picture
        left, top, right, bottom = boxes.unbind(-1)
        in_pixels = torch.stack((left * width, top * height, right * width, bottom * height), -1)
        compute_labels = spatial_labels if self.graph == "spatial" else regat_labels
        return compute_labels(in_pixels, math.hypot(width, height))

    def advance(self, inputs: Tensor, rows: Rows, images: dict[str, Tensor]) -> tuple[Tensor, Rows]:
        def read(attention: Tensor) -> Tensor:
            attended = self.attention(attention, images["keys"], images["values"], images["attention_bias"])
            language_input: Tensor = self.language_dropout(torch.cat((attended, attention), 1))
            return language_input

        return two_lstms(self.lstm, self.language_lstm, read, inputs, rows)


class _GCNLSTMConverter(Converter):
    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        d_word = official["token_embed.embeddings.weight"].shape[1]
        attention = convert_attention_lstm(official, "decoder.lstm1", "", d_word)
        return super().tensors(official) | attention | convert_lstm(official, "decoder.lstm2", "language_lstm")


CONVERTER = _GCNLSTMConverter(
    source="X-modaler's GCN-LSTM",
    renames=(
        (r"^token_embed\.embeddings\b", "embedding.0"),
        (r"^encoder\.gate_bias$", "convolution.label_gate"),
        (r"^encoder\.bias$", "convolution.label_bias"),
        (r"^encoder\.gcn_loop", "convolution.loop"),
        (r"^encoder\.gcn_sub", "convolution.forth"),
        (r"^encoder\.gcn_obj", "convolution.back"),
        (r"^decoder\.p_att_feats\b", "attention.key"),
        (r"^decoder\.att\.w_h\b", "attention.query"),
        (r"^decoder\.att\.w_alpha\b", "attention.score"),
        (r"^predictor\.logits\b", "vocabulary"),
    ),
    unused=r"^decoder\.lstm[12]\.",
    size_axes={
        "vocab_size": ("predictor.logits.weight", 0),
        "visual_dim": ("encoder.gcn_loop.weight", 1),
        "d_model": ("predictor.logits.weight", 1),
        "d_embedding": ("token_embed.embeddings.weight", 1),
        "d_attention": ("decoder.p_att_feats.weight", 0),
        "n_labels": ("encoder.bias", 0),
    },
    fixed={"graph": "given", "quirks": True},
    required=lstm_names("decoder.lstm1", "decoder.lstm2"),
)
"""Weights of X-modaler's GCN-LSTM, whose number 0 is begin, end and padding.

Labels of edges come from a semantic graph in the data unless another `graph` is passed; `quirks=False` masks padding.
Shapes do not determine `max_len`.
"""
