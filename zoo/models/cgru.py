"""The conditional GRU captioner: two GRUs with attention between them, and a third as bottleneck of the output.

J.-B. Delbrouck, S. Dupont: "Bringing back simplicity and lightliness into neural image captioning", arXiv:1810.06245.
The authors' code is not available. Where the paper gives no details, this follows their WMT18 system, a fork of
nmtpytorch (https://github.com/jbdel/WMT18_MNMT): initialisation, biases, and the projection from the bottleneck to the
word embeddings' size, without which the output could not be tied to them.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import Memory, Visual, VisualSpec
from zoo.errors import ZooError, check_choice
from zoo.layers.attention import split_heads
from zoo.recurrent import RecurrentCaptioner, Rows


class GRUCell(nn.GRUCell):
    """torch's cell in two parts: `project`, for the inputs of all positions at once, and the update of the state.

    K. Cho et al.: "Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation",
    EMNLP 2014; the reset gate multiplies the projected state, with a bias of its own.
    """

    def project(self, x: Tensor) -> Tensor:
        """W_ih x + b_ih (..., 3 D), for reset gate, update gate and candidate."""
        return F.linear(x, self.weight_ih, self.bias_ih)

    def forward(self, projected: Tensor, state: Tensor) -> Tensor:  # type: ignore[override]
        """The next state (..., D) from `project` of its input and the state."""
        recurrent = F.linear(state, self.weight_hh, self.bias_hh).to(state.dtype)
        widths = [2 * state.shape[-1], state.shape[-1]]
        input_gates, input_candidate = torch.split(projected.to(state.dtype), widths, -1)
        state_gates, state_candidate = torch.split(recurrent, widths, -1)
        reset, update = (input_gates + state_gates).sigmoid().chunk(2, -1)
        candidate = torch.addcmul(input_candidate, reset, state_candidate).tanh()
        return torch.lerp(candidate, state, update)


class ImageGate(nn.Module):
    """c_t = h'_t * tanh(W_img V): one pooled vector V gates the state."""

    def __init__(self, visual_dim: int, d_model: int) -> None:
        super().__init__()
        self.image = nn.Linear(visual_dim, d_model, bias=False)

    def project(self, features: Tensor) -> Tensor:
        """The gate (B, 1, D) of pooled features (B, 1, C)."""
        gate: Tensor = self.image(features).tanh()
        return gate

    def forward(self, states: Tensor, gate: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG002  # as `SharedHeads`
        """States (B, n, D) of the n captions of each image, gated."""
        return states * gate


class SharedHeads(nn.Module):
    """c_t = W_O [head_1; ...; head_n]: every head is as wide as the state, and its keys are also its values.

    head_i = softmax(q_i K_i^T / sqrt(D)) K_i with q_i = Q_i h'_t and K_i = P_i V. Keys and values share P_i, as the
    paper's parameter counts imply (+0.92 M at D = 256, +2.63 M at 512).
    """

    def __init__(self, visual_dim: int, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query = nn.Linear(d_model, n_heads * d_model)
        self.keys = nn.Linear(visual_dim, n_heads * d_model)
        self.output = nn.Linear(n_heads * d_model, d_model)

    def project(self, features: Tensor) -> Tensor:
        """Keys of every head (B, L, H * D) of features (B, L, C)."""
        keys: Tensor = self.keys(features)
        return keys

    def forward(self, states: Tensor, keys: Tensor, mask: Tensor) -> Tensor:
        """States (B, n, D) as queries. If no cell of an image is visible, all get the same weight."""
        queries = split_heads(self.query(states), self.n_heads)
        keys = split_heads(keys, self.n_heads)
        visible = (mask | ~mask.any(-1, keepdim=True))[:, None, None]
        heads = F.scaled_dot_product_attention(queries, keys, keys, visible)
        attended: Tensor = self.output(heads.transpose(1, 2).flatten(2))
        return attended


class ConditionalGRU(RecurrentCaptioner):
    """x = W^x E y; h' = GRU1(x, h); c = look(h', V); h = GRU2(c, h'); b = GRU3([E y; h'; c], h); p = softmax(E' W b).

    The GRUs are torch's (the paper's equations 6 and 7, with a matrix of the input and two bias vectors). The state is
    h alone, zero at first.

    Args:
        d_model: width of the states; word embeddings have half of it.
        n_heads: heads of `look="attention"`.
        dropout: of the bottleneck b.
        look: "gate" multiplies by one pooled vector; "attention" has heads over a grid.
        bottleneck: "gru" is GRU3; "linear" is the paper's equation 9, b = W [E y; h; c].
        only_dim: the only accepted width of features, for a preset with the paper's exact size; None accepts any.
    """

    states = ("state",)

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int,
        d_model: int = 256,
        n_heads: int = 3,
        dropout: float = 0.5,
        max_len: int = 74,
        look: Literal["gate", "attention"] = "gate",
        bottleneck: Literal["gru", "linear"] = "gru",
        only_dim: int | None = None,
    ) -> None:
        check_choice("look", look, ("gate", "attention"))
        check_choice("bottleneck", bottleneck, ("gru", "linear"))
        super().__init__(VisualSpec("pooled" if look == "gate" else "grid", visual_dim), vocab_size, max_len, d_model)
        if d_model < 2 or n_heads < 1:
            raise ZooError(f"d_model must be at least 2 and n_heads 1, not {d_model} and {n_heads}")
        if only_dim not in (None, visual_dim):
            raise ZooError(
                f"this preset is the paper's size on features of {only_dim} channels, not {visual_dim}",
                f"the preset cgru takes any; {only_dim} channels are those of a ResNet-50's third stage",
            )
        embedded = d_model // 2
        self.embedding: nn.Embedding = nn.Embedding(vocab_size, embedded)
        self.input = nn.Linear(embedded, d_model, bias=False)
        self.first = GRUCell(d_model, d_model)
        self.glance = ImageGate(visual_dim, d_model) if look == "gate" else SharedHeads(visual_dim, d_model, n_heads)
        self.second = GRUCell(d_model, d_model)
        joined = embedded + 2 * d_model
        self.bottleneck = GRUCell(joined, d_model) if bottleneck == "gru" else None
        self.projection = nn.Linear(d_model if bottleneck == "gru" else joined, embedded)
        self.output_dropout = nn.Dropout(dropout)
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                nn.init.kaiming_normal_(parameter)
            elif not name.startswith(("first", "second", "bottleneck")):
                nn.init.zeros_(parameter)

    def encode(self, visual: Visual) -> Memory:
        features, mask = self.valid_features(visual)
        if self.visual.kind == "pooled" and features.shape[1] != 1:
            raise ZooError(f"this model needs one pooled vector per image, but the input has {features.shape[1]}")
        image = self.glance.project(features)
        return Memory(image, mask, {"image": image, "mask": mask})

    def cross_attention_modules(self) -> Sequence[nn.Module]:
        """See `Captioner.cross_attention_modules`; a gate does not attend."""
        return (self.glance,) if isinstance(self.glance, SharedHeads) else ()

    def word_inputs(self, words: Tensor, images: dict[str, Tensor]) -> Tensor:  # noqa: ARG002
        return self.first.project(self.input(words))

    def advance(self, inputs: Tensor, rows: Rows, images: dict[str, Tensor]) -> tuple[Tensor, Rows]:
        """See `RecurrentCaptioner.advance`; the output is [h ; h' ; c]."""
        first_state: Tensor = self.first(inputs, rows["state"])
        image = images["image"]
        mask = images["mask"]
        context = self.glance(first_state.view(len(image), -1, self.d_model), image, mask).flatten(0, 1)
        state = self.second(self.second.project(context), first_state)
        return torch.cat((state, first_state, context), 1), {"state": state}

    def predict(self, outputs: Tensor, words: Tensor) -> Tensor:
        """See `RecurrentCaptioner.predict`; the bottleneck is not recurrent, so it runs on all positions at once."""
        state, first_state, context = outputs.chunk(3, -1)
        if self.bottleneck is None:
            embedded = self.output_dropout(self.projection(torch.cat((words, state, context), -1)))
        else:
            projected = self.bottleneck.project(torch.cat((words, first_state, context), -1))
            embedded = self.projection(self.output_dropout(self.bottleneck(projected, state)))
        return F.linear(embedded, self.embedding.weight, self.bias)
