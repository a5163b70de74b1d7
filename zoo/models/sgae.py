"""SGAE: Up-Down's two LSTMs attend to nodes of an image, and to their reconstructions from a learned dictionary.

X. Yang, K. Tang, H. Zhang, J. Cai: "Auto-Encoding Scene Graphs for Image Captioning", CVPR 2019. Numerically equal to
`lstm_mem4` of https://github.com/yangxuntu/SGAE (no licence stated): captioning of images with and without the image
graph, and of sentences from their graphs, by which the authors pretrain the dictionary.
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
    """Nodes of an image: regions, averaged with messages from their relations, then relations, then attributes."""

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
            regions: (B, N, D).
            mask: (B, N), true where valid.
            relations: (B, M, 3), -1 where padded, see `zoo.captioner.Visual`.
            attributes: (B, P, 1 + a), -1 where padded; a row without words is not a node.
            embed: words to vectors (..., E).
        """
        valid_relation = (relations >= 0).all(-1)
        subject, obj, label = relations.clamp(min=0).unbind(-1)
        predicate = self.word(embed(label))
        triple = torch.cat((take_nodes(regions, subject), take_nodes(regions, obj), predicate), -1)
        averaged = average_with_messages(
            regions, valid_relation, (subject, self.to_subject(triple)), (obj, self.to_object(triple))
        )
        valid_word = (attributes[..., 1:] >= 0) & (attributes[..., :1] >= 0)
        words = self.word(embed(attributes[..., 1:].clamp(min=0)))
        owner = take_nodes(regions, attributes[..., 0].clamp(min=0))[:, :, None].expand_as(words)
        described = self.to_attribute(torch.cat((words, owner), -1)) * valid_word[..., None]
        described = described.sum(2) / valid_word.sum(2).clamp(min=1)[..., None]
        nodes = torch.cat((averaged, (predicate + self.to_relation(triple)) / 2, described), 1)
        return nodes, torch.cat((mask, valid_relation, valid_word.any(2)), 1)


def average_with_messages(nodes: Tensor, valid_relation: Tensor, *messages: tuple[Tensor, Tensor]) -> Tensor:
    """The mean of each node and the messages that it receives.

    Args:
        nodes: (B, N, D).
        valid_relation: (B, M), true where a relation is not padding.
        messages: pairs of receiving nodes (B, M) and the vectors that they receive (B, M, D), one per relation.
    """
    weight = valid_relation[..., None].to(nodes.dtype)
    count = torch.ones_like(nodes[..., :1])
    for receiver, message in messages:
        nodes = nodes.scatter_add(1, receiver[..., None].expand(-1, -1, nodes.shape[-1]), message * weight)
        count = count.scatter_add(1, receiver[..., None], weight)
    return nodes / count


def take_nodes(nodes: Tensor, index: Tensor) -> Tensor:
    """The nodes (B, N, D) at `index` (B, M), as (B, M, D)."""
    return nodes.gather(1, index[..., None].expand(-1, -1, nodes.shape[-1]))


class SentenceGraph(nn.Module):
    """Nodes of a sentence: objects, averaged with messages from their relations, then relations, then attributes.

    All are computed from word vectors, where `ImageGraph` has vectors of regions. A layer of the released code that no
    output depends on (`ssg_obj_attr_fc`) is left out.
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
            objects: (B, N), -1 where padded, see `SGAE.encode_sentences`.
            attributes: (B, N, a), -1 where padded; an object without attributes has no attribute node.
            relations: (B, M, 3), -1 where padded.
            embed: words to vectors (..., E).
        """
        valid_object = objects >= 0
        valid_relation = (relations >= 0).all(-1)
        subject, obj, label = relations.clamp(min=0).unbind(-1)
        words = embed(objects.clamp(min=0))
        triple = torch.cat((take_nodes(words, subject), take_nodes(words, obj), embed(label.clamp(min=0))), -1)
        averaged = average_with_messages(
            self.object(words), valid_relation, (subject, self.to_subject(triple)), (obj, self.to_object(triple))
        )
        valid_word = attributes >= 0
        attribute_words = embed(attributes.clamp(min=0))
        owner = words[:, :, None].expand_as(attribute_words)
        described = self.to_attribute(torch.cat((owner, attribute_words), -1)) * valid_word[..., None]
        described = described.sum(2) / valid_word.sum(2).clamp(min=1)[..., None]
        nodes = torch.cat((averaged, self.to_relation(triple), described), 1)
        return nodes, torch.cat((valid_object, valid_relation, valid_word.any(2)), 1)


class SentenceDecoder(nn.Module):
    """The graph of a sentence, and a decoder of an attention LSTM [h_language; image; word] and a language LSTM.

    Word embedding, output layer and dictionary are those of the captioner.

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

    def memory_tensors(self, nodes: Tensor, mask: Tensor, image: Tensor) -> dict[str, Tensor]:
        """`Memory.extra` for nodes (B, L, R) with their mask, and the embedded image (B, R)."""
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
            keys = images["sentence_keys"]
            nodes = images["sentence_nodes"]
            attention_bias = images["sentence_bias"]
            return torch.cat((self.attention(attention, keys, nodes, attention_bias), attention), 1)

        return two_lstms(self.lstm, self.language_lstm, read, inputs, rows)


class SGAE(RecurrentCaptioner):
    """Up-Down whose language LSTM reads two attended vectors: of nodes, and of their reconstructions.

    Args:
        d_model: R, of both LSTMs, the nodes, the dictionary and the embedded image.
        d_attention: of both attentions' tanh layers.
        dropout: of embedded words, regions, image and nodes, and before the logits.
        n_entries: K, rows of the dictionary.
        graph: "none" uses the regions as nodes; "given" convolves them along the relations of a scene graph and adds
            nodes of relations and attributes.
        n_graph_words: number of words that occur in graphs only. They follow the vocabulary, and have embeddings but no
            logits. The released vocabulary contains them instead.
        sentences: whether the model also has the auto-encoder of sentence graphs for `encode_sentences`, a second
            decoder that shares word embedding, embedded image, output layer and dictionary with the first.
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
            raise ZooError(f"n_graph_words cannot be {n_graph_words} with graph={graph!r}", "without a graph it is 0")
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
        del self.entry_attention.key  # both attentions use the key layer of the nodes, as released
        self.language_lstm = LSTMCell(3 * d_model, d_model, d_model)
        self.output_dropout = nn.Dropout(dropout)
        self.vocabulary = nn.Linear(d_model, vocab_size)
        self.sentences = SentenceDecoder(d_embedding, d_model, d_attention, dropout) if sentences else None

    def encode(self, visual: Visual) -> Memory:
        """See `Captioner.encode`; words of a scene graph are entries of the vocabulary."""
        features, mask = self.valid_features(visual)
        nodes = self.region_embedding(features)
        valid = mask
        if self.graph is not None:
            if visual.relations is None or visual.attributes is None:
                raise ZooError(
                    "this model needs a scene graph, but the input has none",
                    "set relations and attributes, or create the model with graph='none'",
                )
            nodes, valid = self.graph(nodes, mask, visual.relations, visual.attributes, self.embedding)
        image = mean_of_valid(features, mask)
        entries = self._reconstruct(self.to_dictionary(nodes))
        keys, attention_bias = self.node_attention.project(nodes, valid)
        # The bias of the scores is added times zero for its gradient, as in `AdditiveAttention.project`.
        bias = self.node_attention.key.bias + self.entry_attention.query.bias + 0 * self.entry_attention.score.bias
        entry_keys = 2 * F.linear(entries, self.node_attention.key.weight, bias)
        image = F.linear(self.image_embedding(image), self.image_gates.weight, self.lstm.both_biases())
        extra = {
            "keys": keys,
            "nodes": nodes,
            "entry_keys": entry_keys,
            "entries": entries,
            "attention_bias": attention_bias,
            "image": image,
        }
        return Memory(nodes, valid, extra)

    def encode_sentences(
        self, visual: Visual, objects: Tensor, attributes: Tensor, relations: Tensor, *, dictionary: bool = False
    ) -> Memory:
        """Encode the scene graphs of sentences, whose words are entries of the vocabulary, with their images.

        Args:
            visual: B images, of which the mean region is used. The n graphs of an image are adjacent.
            objects: (B * n, N) int64, the word of each object; -1 where padded.
            attributes: (B * n, N, a) int64, the words of each object's attributes; -1 where padded.
            relations: (B * n, M, 3) int64, index of the subject, index of the object, and word; -1 where padded.
            dictionary: attend to the nodes' reconstructions from the dictionary instead of the nodes.
        """
        if self.sentences is None:
            raise ZooError("this model has no auto-encoder of sentence graphs", "create it with sentences=True")
        image = mean_of_valid(*self.valid_features(visual))
        nodes, mask = self.sentences.graph(objects, attributes, relations, self.embedding)
        if dictionary:
            nodes = self._reconstruct(nodes)
        nodes = nodes.masked_fill(~mask[..., None], 0.0)  # so that the padding of a graph without nodes has no effect
        image = self.image_embedding(image).repeat_interleave(len(objects) // len(image), 0)
        return Memory(nodes, mask, self.sentences.memory_tensors(nodes, mask, image))

    def _reconstruct(self, nodes: Tensor) -> Tensor:
        """The reconstructions softmax(h D^T) D of nodes h (..., R) from the dictionary D."""
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
        """See `Converter.tensors`; only LSTMs that the checkpoint has are converted."""
        tensors = super().tensors(official)
        d_word = official["embed.0.weight"].shape[1]
        for core, prefix in (("rela_core", ""), ("ssg_core", "sentences.")):
            if f"{core}.att_lstm.weight_ih" in official:
                tensors |= convert_attention_lstm(official, f"{core}.att_lstm", prefix, d_word)
                tensors |= convert_lstm(official, f"{core}.lang_lstm", f"{prefix}language_lstm")
        return tensors

    def select(self, name: str, official: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> Tensors:
        left_out: tuple[str, ...] = () if sizes["graph"] == "given" else ("graph.",)
        if not {**model_card(name).arguments, **sizes}.get("sentences"):
            left_out += ("sentences.", "ssg_")
        tensors = super().select(name, official, sizes)
        return {key: tensor for key, tensor in tensors.items() if not key.startswith(left_out)}


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

The dictionary is released in a separate file; pass it as `memory_cell`. Parts for sentence graphs (`ssg_*`) are left
out unless `sentences` is true, and those of the image graph unless `graph` is "given". Two parts that no output depends
on (`ssg_obj_attr_fc`, `ssg_mem`) are always left out. Shapes do not determine `max_len`, `sentences` and `graph`, whose
default is "none".
"""
