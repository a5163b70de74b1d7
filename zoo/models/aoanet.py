"""AoANet, and the Image Transformer, which builds on it.

L. Huang, W. Wang, J. Chen, X.-Y. Wei: "Attention on Attention for Image Captioning", ICCV 2019 (arXiv:1908.06954).
Code: https://github.com/husthuaan/AoANet (MIT).

S. He, W. Liao, H. R. Tavakoli, M. Yang, B. Rosenhahn, N. Pugeault: "Image Captioning through Image Transformer", ACCV
2020 (arXiv:2004.14231). Code: https://github.com/wtliao/ImageTransformer (no licence stated).

Where code and paper differ, this follows the code, except for the spatial graph, where `graph` chooses.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import Memory, Visual, VisualSpec
from zoo.errors import ZooError, check_at_least_1, check_choice
from zoo.layers.annotated_norm import EPSILON, AnnotatedNorm
from zoo.layers.aoa import AoADropouts, AoARefiner, AttentionOnAttention, GraphMode, MemoriesAttention, spatial_graph
from zoo.layers.attention import head_width, joined
from zoo.layers.lstm import LSTMCell, LSTMGradient, LSTMTape
from zoo.layers.pooling import mean_of_valid
from zoo.layers.residual import attention_mixers
from zoo.recurrent import RecurrentCaptioner, Rows

_aten = torch.ops.aten
_BRANCH_DROPOUT, _GATE_DROPOUT = 0.1, 0.3  # of the refiner, in both codebases


class AoAScan(torch.autograd.Function):
    """The contexts (B * n, T, R) of all positions, from states of zeros: the recurrence with its gradient written out.

    Rows are worked through caption by caption, not image by image, so that the heads of all rows are a batch of
    products without being copied.

    Args:
        inputs: (B * n, T, 4 R), pre-activations of the LSTM but for the past states.
        keys, values, barrier: of `MemoriesAttention.prepare`, (B, H, M * L, d_k) twice and (B, H, 1, M * L).
        context_mask: what contexts (T, n * B, R) that the LSTM reads are multiplied by.
        attention_mask: what attention (T, B * H, n, M * L) is multiplied by.
        n_memories: M.
        lstm_weight: (4 R, 2 R), of [h | context].
        query, query_bias: (R, R) and (R), of the plain norm of h.
        gate, gate_bias: (2 R, 2 R) and (2 R).
    """

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        keys: Tensor,
        values: Tensor,
        barrier: Tensor,
        context_mask: Tensor | None,
        attention_mask: Tensor | None,
        n_memories: int,
        lstm_weight: Tensor,
        query: Tensor,
        query_bias: Tensor,
        gate: Tensor,
        gate_bias: Tensor,
    ) -> Tensor:
        (rows, length, _), width, batch = inputs.shape, query.shape[0], keys.shape[0]
        each, (heads, places, d_k) = rows // batch, (batch * keys.shape[1], *keys.shape[2:])
        keys, values, barrier = keys.flatten(0, 1), values.flatten(0, 1), barrier.flatten(0, 1)
        scales, added = LSTMTape.scales(inputs, width), inputs.new_empty(length, each, batch, 4 * width)
        torch.mul(inputs.view(batch, each, length, -1).permute(2, 1, 0, 3), scales, out=added)
        scaled, (of_answer, of_hidden) = lstm_weight * scales[:, None], gate.t().split_with_sizes([width, width])
        tape = LSTMTape.blank(inputs, length, rows, width)
        states = inputs.new_empty(length + 1, rows, 2 * width)  # h and dropped context after each position
        states[0].zero_()
        normed, queries, answers, contexts = inputs.new_empty(4, length, rows, width)
        deviations = inputs.new_empty(length, rows, 1)
        mixed = inputs.new_empty(length, rows, 2 * width)
        weights = inputs.new_empty(length, heads, each, n_memories, places // n_memories)
        for t in range(length):
            hidden, context = states[t + 1].split_with_sizes([width, width], 1)
            tape.advance(t, states[t], scaled, added[t].flatten(0, 1), hidden)
            deviation, mean = torch.std_mean(hidden, -1, keepdim=True)
            torch.add(deviation, EPSILON, out=deviations[t])
            torch.div(hidden - mean, deviations[t], out=normed[t])
            torch.addmm(query_bias, normed[t], query.t(), out=queries[t])
            scores = torch.baddbmm(barrier, _by_head(queries[t], each, d_k), keys.transpose(1, 2))
            torch.softmax(scores.view_as(weights[t]), -1, out=weights[t])
            looks = weights[t].flatten(2)
            looks = looks if attention_mask is None else looks * attention_mask[t]
            torch.bmm(looks, values, out=_by_head(answers[t], each, d_k))
            torch.addmm(gate_bias, answers[t], of_answer, out=mixed[t])
            torch.addmm(mixed[t], hidden, of_hidden, out=mixed[t])
            _aten.glu.out(mixed[t], 1, out=contexts[t] if context_mask is not None else context)
            if context_mask is not None:
                torch.mul(contexts[t], context_mask[t], out=context)
        ctx.save_for_backward(
            *(keys, values, context_mask, attention_mask, lstm_weight, query, gate, tape.gates, tape.cells),
            *(states, normed, queries, answers, deviations, mixed, weights),
        )
        ctx.batch = batch
        whole = contexts if context_mask is not None else states[1:, :, width:]
        return whole.view(length, each, batch, width).permute(2, 1, 0, 3).reshape(rows, length, width)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of inputs, keys, values and weights."""
        keys, values, context_mask, attention_mask, lstm_weight, query, gate, gates, cells, *saved = ctx.saved_tensors
        states, normed, queries, answers, deviations, mixed, weights = saved
        (rows, length, width), batch, d_k = gradient.shape, ctx.batch, keys.shape[2]
        each = rows // batch
        lstm = LSTMGradient(LSTMTape(gates, cells))
        to_contexts = gradient.new_empty(length, each, batch, width)
        to_contexts.copy_(gradient.view(batch, each, length, width).permute(2, 1, 0, 3))
        to_contexts = to_contexts.flatten(1, 2)
        to_states, to_mixed = torch.empty_like(states), torch.empty_like(mixed)
        to_states[-1].zero_()
        to_queries, to_answers, to_weights = (torch.empty_like(part) for part in (queries, answers, weights))
        norm = _NormGradient(normed, deviations)
        of_answer, of_hidden = gate.split_with_sizes([width, width], 1)
        for t in reversed(range(length)):
            to_hidden, to_context = to_states[t + 1].split_with_sizes([width, width], 1)
            if t + 1 < length and context_mask is None:
                to_contexts[t].add_(to_context)
            elif t + 1 < length:
                to_contexts[t].addcmul_(to_context, context_mask[t])
            _aten.glu_backward.grad_input(to_contexts[t], mixed[t], 1, grad_input=to_mixed[t])
            torch.mm(to_mixed[t], of_answer, out=to_answers[t])
            torch.addmm(to_hidden, to_mixed[t], of_hidden, out=to_hidden)
            to_looks = torch.bmm(_by_head(to_answers[t], each, d_k), values.transpose(1, 2))
            to_looks = to_looks if attention_mask is None else to_looks.mul_(attention_mask[t])
            _aten._softmax_backward_data.out(
                *(to_looks.view_as(weights[t]), weights[t], -1, weights.dtype), grad_input=to_weights[t]
            )
            torch.bmm(to_weights[t].flatten(2), keys, out=_by_head(to_queries[t], each, d_k))
            to_hidden.add_(norm.back(t, to_queries[t] @ query))
            torch.mm(lstm.back(t, to_hidden), lstm_weight, out=to_states[t])
        to_gates, read = lstm.gates().flatten(0, 1), states[1:, :, :width].flatten(0, 1)
        to_queries, to_mixed = to_queries.flatten(0, 1), to_mixed.flatten(0, 1)
        looks = weights.flatten(3) if attention_mask is None else weights.flatten(3) * attention_mask
        shape = (batch, -1, *keys.shape[1:])
        return (
            to_gates.view(length, each, batch, -1).permute(2, 1, 0, 3).reshape(rows, length, -1),
            _summed(to_weights.flatten(3), queries.flatten(0, 1)).view(shape),
            _summed(looks, to_answers.flatten(0, 1)).view(shape),
            *(None, None, None, None),
            to_gates.t() @ states[:-1].flatten(0, 1),
            to_queries.t() @ normed.flatten(0, 1),
            to_queries.sum(0),
            torch.cat((to_mixed.t() @ answers.flatten(0, 1), to_mixed.t() @ read), 1),
            to_mixed.sum(0),
        )


def _by_head(x: Tensor, each: int, d_k: int) -> Tensor:
    """(n * B, R) as (B * H, n, d_k)."""
    return x.view(each, -1, d_k).transpose(0, 1)


def _summed(looks: Tensor, rows: Tensor) -> Tensor:
    """The sum over all positions and captions of looks (T, B * H, n, L) times rows (T * n * B, R): (B * H, L, d_k)."""
    length, heads, each, places = looks.shape
    by_place = looks.permute(1, 3, 0, 2).reshape(heads, places, -1)
    return by_place @ rows.view(length * each, heads, -1).transpose(0, 1)


class _NormGradient:
    """The gradient of y = (x - mean) / (s + eps) of all positions, s the unbiased deviation of D channels.

    That of x is (g - mean(g)) / (s + eps) - y sum(g y) / ((D - 1) s): what torch's layer normalisation has for an
    input z = y (s + eps) root(D (s + eps) / ((D - 1) s)) with a mean of 0 and an inverse deviation of 1 / (s + eps).
    """

    def __init__(self, normed: Tensor, deviations: Tensor) -> None:
        channels = normed.shape[-1]
        tiny = torch.finfo(deviations.dtype).tiny
        own = (deviations - EPSILON).clamp_(min=tiny)  # zero for equal numbers, where y is zero too
        stretched = deviations * (deviations / own * (channels / max(channels - 1, 1))).sqrt_()
        self._inputs, self._inverse = normed * stretched, deviations.reciprocal()
        self._mean = torch.zeros_like(deviations[0])

    def back(self, position: int, gradient: Tensor) -> Tensor:
        """From the gradient (rows, D) of y to that of x."""
        shape = gradient.shape[-1:]
        inputs = (self._inputs[position], shape, self._mean, self._inverse[position])
        to_x: Tensor = _aten.native_layer_norm_backward(gradient, *inputs, None, None, [True, False, False])[0]
        return to_x


class AoANet(RecurrentCaptioner):
    """Regions refined by attention on attention, and an LSTM with attention on attention.

    h = LSTM([word; mean + context], h); context = GLU(W [1/M sum_m attend_m(norm(h)); h]); p = softmax(W context).

    Args:
        d_word: width of word embeddings; d_model if not given.
        dropout: on embedded regions and words, on the context that is fed back to the LSTM, and before the vocabulary.
        attention_dropout: in the refiner and the decoder.
        refiner: whether to use a refiner; without it the decoder attends to the embedded regions directly.
        wide_layers: encoder layers, counted from 1, with the Image Transformer's three attentions; None: all.
        spatial: whether these attend along the graph of parents, neighbours and children; otherwise their three
            attentions use all regions and are averaged.
        sub_transformers: M, the Image Transformer's parallel ones: keys and values of the image for each query, whose
            answers are averaged.
        graph: how the graph is built from boxes; see `GraphMode`.
    """

    per_row = ("image",)
    states = ("hidden", "cell", "context")

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int,
        d_model: int = 1024,
        d_word: int | None = None,
        n_heads: int = 8,
        n_encoder_layers: int = 6,
        dropout: float = 0.5,
        attention_dropout: float = 0.1,
        max_len: int = 74,
        refiner: bool = True,
        wide_layers: Sequence[int] | None = (),
        spatial: bool = True,
        sub_transformers: int = 1,
        graph: GraphMode = "paper",
    ) -> None:
        super().__init__(VisualSpec("regions", visual_dim), vocab_size, max_len, d_model)
        head_width(d_model, n_heads)
        every_layer = range(1, n_encoder_layers + 1)
        wide = set(every_layer if wide_layers is None else wide_layers)
        if outside := sorted(wide - set(every_layer)):
            raise ZooError(f"wide_layers names layer {outside[0]}, but n_encoder_layers is {n_encoder_layers}")
        check_choice("graph", graph, ("paper", "official"))
        check_at_least_1(sub_transformers=sub_transformers)
        self.sees_graph, self.graph = spatial and bool(wide), graph
        d_word = d_model if d_word is None else d_word
        dropouts = AoADropouts(attention_dropout, _BRANCH_DROPOUT, _GATE_DROPOUT)
        refining = AoARefiner(d_model, n_heads, n_encoder_layers, dropouts, wide) if refiner else None
        self.region_embedding = nn.Sequential(nn.Linear(visual_dim, d_model), nn.ReLU(), nn.Dropout(dropout))
        self.refiner = refining
        self.memories = nn.ModuleList(nn.Linear(d_model, 2 * d_model) for _ in range(sub_transformers))
        self.matrices_in = {"memories": 2}
        self.embedding = nn.Sequential(nn.Embedding(vocab_size, d_word), nn.ReLU(), nn.Dropout(dropout))
        self.lstm = LSTMCell(d_word, d_model, 2 * d_model)
        self.query_norm = AnnotatedNorm(d_model)
        self.query = nn.Linear(d_model, d_model)
        self.attention = MemoriesAttention(n_heads, sub_transformers, attention_dropout)
        self.context_dropout = nn.Dropout(dropout)
        self.gate = AttentionOnAttention(d_model)
        self.output_dropout = nn.Dropout(dropout)
        self.vocabulary = nn.Linear(d_model, vocab_size)

    def region_attention_modules(self) -> Sequence[nn.Module]:
        return () if self.refiner is None else attention_mixers(self.refiner.layers)

    def encode(self, visual: Visual) -> Memory:
        """See `Captioner.encode`; keys and values (B, H, M * L, d_k), and what the mean region adds to the LSTM."""
        features, mask = self.look(visual)
        regions = self.region_embedding(features)
        if self.refiner is not None:
            regions = self.refiner(regions, mask, self._relations(visual, mask))
        memories: list[nn.Linear] = list(self.memories)  # type: ignore[arg-type]  # ModuleList is not generic
        projected = F.linear(regions, *joined(*memories)).view(*mask.shape, len(memories), 2, -1)
        first, second = projected.unbind(3)
        keys, values = (second, first) if len(memories) == 1 else (first, second)  # the authors' two codebases differ
        mean = mean_of_valid(regions.masked_fill(~mask[..., None], 0.0), mask)
        image = F.linear(mean, self.lstm.recurrent.weight[:, : self.d_model], self.lstm.both_biases())
        keys, values, barred = self.attention.prepare(keys, values, mask)
        return Memory(regions, mask, {"keys": keys, "values": values, "mean": mean, "image": image, "barrier": barred})

    def _relations(self, visual: Visual, mask: Tensor) -> Tensor | None:
        """The spatial graph, where layers attend along one; ZooError without boxes."""
        if not self.sees_graph:
            return None
        if visual.boxes is None:
            raise ZooError("the spatial graph needs the regions' boxes, and there are none", "or set spatial=False")
        return spatial_graph(visual.boxes, mask, mode=self.graph)

    def shared_tensors(self) -> dict[str, Tensor]:
        """See `RecurrentCaptioner.shared_tensors`; one product of the hidden state, for the query and for the gate.

        The query is W norm(h) + b = W G (h - mean(h)) / (deviation + eps) + (W s + b), where G is the norm's gain and s
        its shift; W G less the means of its rows needs no mean of h.
        """
        norm, query, mix = self.query_norm, self.query, self.gate.mix
        scaled = query.weight * norm.gain
        of_hidden = torch.cat((scaled - scaled.mean(1, keepdim=True), mix.weight[:, self.d_model :]))
        bias = torch.cat((torch.zeros_like(query.bias), mix.bias))
        constant = torch.addmv(query.bias, query.weight, norm.shift)
        return {"of_hidden": of_hidden, "hidden_bias": bias, "query": constant}

    def advance(self, inputs: Tensor, rows: Rows, images: dict[str, Tensor]) -> tuple[Tensor, Rows]:
        """See `RecurrentCaptioner.advance`; the rows of an image are adjacent and share its keys and values."""
        width = self.d_model
        past = torch.cat((self.context_dropout(rows["context"]), rows["hidden"]), 1)
        hidden, cell = self.lstm(inputs, past, rows["cell"])
        query, mixed = torch.split(F.linear(hidden, images["of_hidden"], images["hidden_bias"]), [width, 2 * width], 1)
        queries = torch.addcdiv(images["query"], query, hidden.std(1, keepdim=True) + EPSILON)
        answer = self.attention(queries, images["keys"], images["values"], images["barrier"])
        context = F.glu(torch.addmm(mixed, answer, self.gate.mix.weight[:, :width].t()), 1)
        return context, {"hidden": hidden, "cell": cell, "context": context}

    def scan(self, inputs: Tensor, images: dict[str, Tensor]) -> Tensor:
        keys = images["keys"]
        (batch, n_heads, places, _), (rows, length, _) = keys.shape, inputs.shape
        of_context, of_hidden = self.lstm.recurrent.weight.split_with_sizes([self.d_model, self.d_model], 1)
        norm, query = self.query_norm, self.query  # the norm's gain and shift go into the query's matrix
        contexts: Tensor = AoAScan.apply(
            *(inputs, keys, images["values"], images["barrier"]),
            _mask(self.context_dropout, inputs, (length, rows, self.d_model)),
            _mask(self.attention.dropout, inputs, (length, batch * n_heads, rows // batch, places)),
            self.attention.n_memories,
            torch.cat((of_hidden, of_context), 1),
            *(query.weight * norm.gain, torch.addmv(query.bias, query.weight, norm.shift)),
            *(self.gate.mix.weight, self.gate.mix.bias),
        )
        return contexts


def _mask(dropout: nn.Dropout, like: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """What dropout multiplies by; None if nothing is dropped."""
    if not dropout.training or not dropout.p:
        return None
    return F.dropout(like.new_ones(shape), dropout.p)
