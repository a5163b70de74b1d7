"""SGAE: nodes of an image re-encoded through a dictionary, and attended to beside themselves by Up-Down's two LSTMs.

X. Yang, K. Tang, H. Zhang, J. Cai: "Auto-Encoding Scene Graphs for Image Captioning", CVPR 2019. Numerically equal to
`lstm_mem4` of https://github.com/yangxuntu/SGAE (no licence stated) in its captioning of images, with and without the
image graph, and of sentences from their graphs, by which the authors train the dictionary before.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import Memory, Visual, VisualSpec
from zoo.converter import Converter, Tensors, convert_attention_lstm, convert_lstm, lstm_names
from zoo.errors import ZooError, check_at_least_1, check_choice
from zoo.layers.additive_attention import AdditiveAttention
from zoo.layers.lstm import STATES, LSTMCell, two_lstms
from zoo.layers.pooling import mean_of_valid
from zoo.recurrent import RecurrentCaptioner, Rows, project_words
from zoo.registry import model_card


def relu_layer(d_input: int, d_model: int, dropout: float) -> nn.Sequential:
    """A linear layer, a ReLU, and dropout."""
    return nn.Sequential(nn.Linear(d_input, d_model), nn.ReLU(), nn.Dropout(dropout))


class ImageGraph(nn.Module):
    """Regions are averaged with what their relations tell them; relations and attributed regions become nodes too."""

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
            relations: (B, M, 3), attributes: (B, P, 1 + a), -1 where padded, see `zoo.captioner.Visual`.
            embed: words to vectors (..., E). An attribute row without words is no node.
        """
        related = (relations >= 0).all(-1)
        subject, obj, label = relations.clamp(min=0).unbind(-1)
        predicate = self.word(embed(label))
        triple = torch.cat((take_nodes(regions, subject), take_nodes(regions, obj), predicate), -1)
        averaged = told_by_relations(
            regions, related, (subject, self.to_subject(triple)), (obj, self.to_object(triple))
        )
        said = (attributes[..., 1:] >= 0) & (attributes[..., :1] >= 0)
        words = self.word(embed(attributes[..., 1:].clamp(min=0)))
        owner = take_nodes(regions, attributes[..., 0].clamp(min=0))[:, :, None].expand_as(words)
        described = self.to_attribute(torch.cat((words, owner), -1)) * said[..., None]
        described = described.sum(2) / said.sum(2).clamp(min=1)[..., None]
        nodes = torch.cat((averaged, (predicate + self.to_relation(triple)) / 2, described), 1)
        return nodes, torch.cat((mask, related, said.any(2)), 1)


def told_by_relations(nodes: Tensor, related: Tensor, *ends: tuple[Tensor, Tensor]) -> Tensor:
    """Nodes (B, N, D) averaged with what relations (B, M), where there are any, tell each of their ends (B, M, D)."""
    weight, count = related[..., None].to(nodes.dtype), torch.ones_like(nodes[..., :1])
    for place, told in ends:
        nodes = nodes.scatter_add(1, place[..., None].expand(-1, -1, nodes.shape[-1]), told * weight)
        count = count.scatter_add(1, place[..., None], weight)
    return nodes / count


def take_nodes(nodes: Tensor, places: Tensor) -> Tensor:
    """Vectors (B, N, D) of nodes at `places` (B, M)."""
    return nodes.gather(1, places[..., None].expand(-1, -1, nodes.shape[-1]))


class SentenceGraph(nn.Module):
    """Objects averaged with what their relations tell them; relations and the attributes of an object are nodes too.

    Everything is computed from the vectors of words, where `ImageGraph` has those of regions. A layer of the released
    code that no output depends on (`ssg_obj_attr_fc`) is left out.
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
                `SGAE.encode_sentences`. An object without attributes has no node of them.
            embed: words to vectors (..., E).
        """
        named, related = objects >= 0, (relations >= 0).all(-1)
        subject, obj, label = relations.clamp(min=0).unbind(-1)
        words = embed(objects.clamp(min=0))
        triple = torch.cat((take_nodes(words, subject), take_nodes(words, obj), embed(label.clamp(min=0))), -1)
        averaged = told_by_relations(
            self.object(words), related, (subject, self.to_subject(triple)), (obj, self.to_object(triple))
        )
        said = attributes >= 0
        described = embed(attributes.clamp(min=0))
        described = self.to_attribute(torch.cat((words[:, :, None].expand_as(described), described), -1))
        described = (described * said[..., None]).sum(2) / said.sum(2).clamp(min=1)[..., None]
        nodes = torch.cat((averaged, self.to_relation(triple), described), 1)
        return nodes, torch.cat((named, related, said.any(2)), 1)


class SentenceDecoder(nn.Module):
    """The graph of a sentence, and the attention LSTM [h_language; image; word] with the language LSTM above it.

    Words, their output layer and the dictionary are the captioner's own.

    Args:
        d_embedding: of the words.
        d_model: R, of both LSTMs, the nodes and the embedded image.
        dropout: in the graph.
    """

    def __init__(self, d_embedding: int, d_model: int, d_attention: int, dropout: float) -> None:
        super().__init__()
        self.graph = SentenceGraph(d_embedding, d_model, dropout)
        self.lstm = LSTMCell(d_embedding, d_model, 2 * d_model)
        self.image_gates = nn.Linear(d_model, 4 * d_model, bias=False)
        self.matrices_in = {"image_gates": 4}
        nn.init.uniform_(self.image_gates.weight, -(d_model**-0.5), d_model**-0.5)
        self.attention = AdditiveAttention(d_model, d_model, d_attention)
        self.language_lstm = LSTMCell(2 * d_model, d_model, d_model)

    def remember(self, nodes: Tensor, mask: Tensor, image: Tensor) -> dict[str, Tensor]:
        """What every word reads: nodes (B, L, R) with their mask, and the embedded image (B, R)."""
        keys, attention_bias = self.attention.project(nodes, mask)
        image = F.linear(image, self.image_gates.weight, self.lstm.both_biases())
        return {
            "sentence_keys": keys,
            "sentence_nodes": nodes,
            "sentence_bias": attention_bias,
            "sentence_image": image,
        }

    def advance(self, inputs: Tensor, rows: Rows, images: dict[str, Tensor]) -> tuple[Tensor, Rows]:
        """See `RecurrentCaptioner.advance`."""

        def read(attention: Tensor) -> Tensor:
            node = self.attention(attention, *(images[f"sentence_{name}"] for name in ("keys", "nodes", "bias")))
            return torch.cat((node, attention), 1)

        return two_lstms(self.lstm, self.language_lstm, read, inputs, rows)


class SGAE(RecurrentCaptioner):
    """Up-Down whose language LSTM reads two attended vectors: of the nodes, and of what the dictionary makes of them.

    Args:
        d_model: R, of both LSTMs, the nodes, the dictionary and the embedded image.
        d_attention: of both attentions' tanh layers.
        dropout: of embedded words, regions, image and nodes, and before the logits.
        n_entries: K, rows of the dictionary.
        graph: "none" has the regions as nodes; "given" convolves them along the relations of a scene graph and adds
            nodes of relations and attributes.
        n_graph_words: words of graphs that no caption has, numbered behind the vocabulary: they are embedded, and have
            no logits, where the released vocabulary has them among its words.
        sentences: whether the model also has the auto-encoder of sentence graphs, a second decoder that shares words,
            embedded image, output layer and dictionary with the first, for `encode_sentences`.
    """

    per_row = ("image", "sentence_image", "attention_bias")
    states = STATES

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int,
        d_model: int = 1000,
        dropout: float = 0.5,
        max_len: int = 20,
        d_embedding: int | None = None,
        d_attention: int = 512,
        n_entries: int = 10_000,
        graph: Literal["none", "given"] = "none",
        n_graph_words: int = 0,
        sentences: bool = False,
    ) -> None:
        visual = VisualSpec("regions", visual_dim, graph="words" if graph == "given" else "none")
        super().__init__(visual, vocab_size, max_len, d_model)
        check_choice("graph", graph, ("none", "given"))
        check_at_least_1(n_entries=n_entries)
        if n_graph_words < 0 or (n_graph_words and graph == "none"):
            raise ZooError(f"n_graph_words cannot be {n_graph_words} of graph {graph!r}", "without a graph it is 0")
        d_embedding = d_embedding or d_model
        words = nn.Embedding(vocab_size + n_graph_words, d_embedding)
        self.embedding = nn.Sequential(words, nn.ReLU(), nn.Dropout(dropout))
        self.region_embedding = nn.Sequential(nn.Linear(visual_dim, d_model), nn.ReLU(), nn.Dropout(dropout))
        self.image_embedding = nn.Sequential(nn.Linear(visual_dim, d_model), nn.ReLU(), nn.Dropout(dropout))
        self.graph = ImageGraph(d_embedding, d_model, dropout) if graph == "given" else None
        self.to_dictionary = nn.Sequential(
            *(nn.Linear(d_model, d_model), nn.LeakyReLU(0.1), nn.Dropout(dropout)),
            *(nn.Linear(d_model, d_model), nn.LeakyReLU(0.1), nn.Dropout(dropout)),
            nn.Linear(d_model, d_model),
        )
        self.dictionary = nn.Parameter(torch.rand(n_entries, d_model) / 100)
        self.lstm = LSTMCell(d_embedding, d_model, 2 * d_model)
        self.image_gates = nn.Linear(d_model, 4 * d_model, bias=False)
        self.matrices_in = {"image_gates": 4}
        nn.init.uniform_(self.image_gates.weight, -(d_model**-0.5), d_model**-0.5)
        self.node_attention = AdditiveAttention(d_model, d_model, d_attention)
        self.entry_attention = AdditiveAttention(d_model, d_model, d_attention)
        del self.entry_attention.key  # that of the nodes serves both, as released
        self.language_lstm = LSTMCell(3 * d_model, d_model, d_model)
        self.output_dropout = nn.Dropout(dropout)
        self.vocabulary = nn.Linear(d_model, vocab_size)
        self.sentences = SentenceDecoder(d_embedding, d_model, d_attention, dropout) if sentences else None

    def encode(self, visual: Visual) -> Memory:
        """See `Captioner.encode`; words of a scene graph are entries of the vocabulary."""
        features, mask = self.valid_features(visual)
        nodes, valid = self.region_embedding(features), mask
        if self.graph is not None:
            if visual.relations is None or visual.attributes is None:
                raise ZooError(
                    "the graph of this model is given, and visual input has none",
                    "set relations and attributes, or create the model with graph='none'",
                )
            nodes, valid = self.graph(nodes, mask, visual.relations, visual.attributes, self.embedding)
        image = mean_of_valid(features, mask)
        entries = self._look_up(self.to_dictionary(nodes))
        keys, attention_bias = self.node_attention.project(nodes, valid)
        # The score's bias enters with its gradient of zero, as in `AdditiveAttention.project`.
        bias = self.node_attention.key.bias + self.entry_attention.query.bias + 0 * self.entry_attention.score.bias
        entry_keys = 2 * F.linear(entries, self.node_attention.key.weight, bias)
        image = F.linear(self.image_embedding(image), self.image_gates.weight, self.lstm.both_biases())
        extra = {
            "keys": keys,
            "nodes": nodes,
            "entry_keys": entry_keys,
            "entries": entries,
            "attention_bias": attention_bias,
        }
        return Memory(nodes, valid, {**extra, "image": image})

    def encode_sentences(
        self, visual: Visual, objects: Tensor, attributes: Tensor, relations: Tensor, *, dictionary: bool = False
    ) -> Memory:
        """Encode the scene graphs of sentences, whose words are entries of the vocabulary, beside images.

        Args:
            visual: B images, of each of which the mean of its regions is read; n graphs of each are adjacent.
            objects: (B * n, N) int64; attributes: (B * n, N, a) int64, of each object; -1 where padded.
            relations: (B * n, M, 3) int64, place of the subject, place of the object, and word; -1 where padded.
            dictionary: attend to what the dictionary makes of the nodes, in place of the nodes.
        """
        if self.sentences is None:
            raise ZooError("this model has no auto-encoder of sentence graphs", "create it with sentences=True")
        image = mean_of_valid(*self.valid_features(visual))
        nodes, mask = self.sentences.graph(objects, attributes, relations, self.embedding)
        if dictionary:
            nodes = self._look_up(nodes)
        nodes = nodes.masked_fill(~mask[..., None], 0.0)  # a graph without a node tells nothing, however it is padded
        image = self.image_embedding(image).repeat_interleave(len(objects) // len(image), 0)
        return Memory(nodes, mask, self.sentences.remember(nodes, mask, image))

    def _look_up(self, nodes: Tensor) -> Tensor:
        """What the dictionary makes of nodes h (..., R): softmax(h D^T) D."""
        return F.linear(nodes, self.dictionary).softmax(-1) @ self.dictionary

    def cross_attention_modules(self) -> Sequence[nn.Module]:
        """See `Captioner.cross_attention_modules`; the attention to the nodes themselves."""
        return (self.node_attention,)

    def word_inputs(self, words: Tensor, images: dict[str, Tensor]) -> Tensor:
        """See `RecurrentCaptioner.word_inputs`; the embedded image is an input at every word."""
        if self.sentences is not None and "sentence_nodes" in images:
            return project_words(words, self.sentences.lstm.input.weight, images["sentence_image"])
        return project_words(words, self.lstm.input.weight, images["image"])

    def advance(self, inputs: Tensor, rows: Rows, images: dict[str, Tensor]) -> tuple[Tensor, Rows]:
        if self.sentences is not None and "sentence_nodes" in images:
            return self.sentences.advance(inputs, rows, images)

        def read(attention: Tensor) -> Tensor:
            entry = self.entry_attention(attention, images["entry_keys"], images["entries"], images["attention_bias"])
            node = self.node_attention(attention, images["keys"], images["nodes"], images["attention_bias"])
            return torch.cat((entry, node, attention), 1)

        return two_lstms(self.lstm, self.language_lstm, read, inputs, rows)


class _SGAEConverter(Converter):
    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        """See `Converter.tensors`; only decoders whose LSTMs are there are in what is found."""
        found, words = super().tensors(official), official["embed.0.weight"].shape[1]
        for core, place in (("rela_core", ""), ("ssg_core", "sentences.")):
            if f"{core}.att_lstm.weight_ih" in official:
                found |= convert_attention_lstm(official, f"{core}.att_lstm", place, words)
                found |= convert_lstm(official, f"{core}.lang_lstm", f"{place}language_lstm")
        return found

    def select(self, name: str, official: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> Tensors:
        left_out: tuple[str, ...] = () if sizes["graph"] == "given" else ("graph.",)
        if not {**model_card(name).arguments, **sizes}.get("sentences"):
            left_out += ("sentences.", "ssg_")
        found = super().select(name, official, sizes)
        return {own: tensor for own, tensor in found.items() if not own.startswith(left_out)}


CONVERTER = _SGAEConverter(
    source="SGAE's lstm_mem4",
    renames=(
        (r"^embed\.", "embedding."),
        (r"^att_embed\.", "region_embedding."),
        (r"^fc_embed\.", "image_embedding."),
        (r"^embed2vis\.", "graph.word."),
        (r"^rela_sbj_rela_fc\.", "graph.to_subject."),
        (r"^rela_obj_rela_fc\.", "graph.to_object."),
        (r"^rela_rela_fc\.", "graph.to_relation."),
        (r"^rela_attr_fc\.", "graph.to_attribute."),
        (r"^img2sg\.fc1\.0\.", "to_dictionary.0."),
        (r"^img2sg\.fc2\.0\.", "to_dictionary.3."),
        (r"^img2sg\.fc3\.", "to_dictionary.6."),
        (r"^memory_cell$", "dictionary"),
        (r"^rela_ctx2att\.", "node_attention.key."),
        (r"^rela_core\.attention_rela\.h2att\.", "node_attention.query."),
        (r"^rela_core\.attention_rela\.alpha_net\.", "node_attention.score."),
        (r"^rela_core\.attention_mem\.h2att\.", "entry_attention.query."),
        (r"^rela_core\.attention_mem\.alpha_net\.", "entry_attention.score."),
        (r"^logit\.", "vocabulary."),
        (r"^ssg_obj_obj_fc\.", "sentences.graph.object."),
        (r"^ssg_sbj_rela_fc\.", "sentences.graph.to_subject."),
        (r"^ssg_obj_rela_fc\.", "sentences.graph.to_object."),
        (r"^ssg_rela_fc\.", "sentences.graph.to_relation."),
        (r"^ssg_attr_fc\.", "sentences.graph.to_attribute."),
        (r"^ssg_ctx2att\.", "sentences.attention.key."),
        (r"^ssg_core\.attention\.h2att\.", "sentences.attention.query."),
        (r"^ssg_core\.attention\.alpha_net\.", "sentences.attention.score."),
    ),
    unused=r"_lstm\.|^ssg_obj_attr_fc\.|^ssg_mem\.",
    size_axes={
        "vocab_size": ("logit.weight", 0),
        "d_model": ("logit.weight", 1),
        "d_embedding": ("embed.0.weight", 1),
        "visual_dim": ("att_embed.0.weight", 1),
        "d_attention": ("rela_ctx2att.weight", 0),
        "n_entries": ("memory_cell", 0),
    },
    fixed={"graph": "none"},
    required=lstm_names("rela_core.att_lstm", "rela_core.lang_lstm"),
    hint="the model must be the checkpoint's, whose dictionary is passed as memory_cell",
)
"""Weights of SGAE's released `lstm_mem4`, whose number 0 is begin, end and padding.

The dictionary lies in a file of its own there, and is passed as `memory_cell`. Parts for sentence graphs (`ssg_*`) are
left out unless `sentences` is true, and those of the image graph unless `graph` is "given". Two parts that no output of
theirs depends on (`ssg_obj_attr_fc`, `ssg_mem`) are always left out. Shapes do not determine `max_len`, `sentences` and
`graph`, which is "none".
"""
