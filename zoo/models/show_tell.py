"""Show and Tell: an LSTM that reads the image before the first word.

O. Vinyals, A. Toshev, S. Bengio, D. Erhan: "Show and Tell: A Neural Image Caption Generator", CVPR 2015; with maxout
candidates it is the FC model of S. J. Rennie et al.: "Self-critical Sequence Training for Image Captioning", CVPR 2017.
Numerically equal to `show_tell` and to `fc` and `newfc` of https://github.com/ruotianluo/ImageCaptioning.pytorch (MIT).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from torch import Tensor, nn

from zoo.captioner import Memory, Visual, VisualSpec
from zoo.converter import Converter, Tensors, reorder_gates
from zoo.errors import check_at_least_1, check_choice
from zoo.layers.lstm import LSTMCell
from zoo.layers.pooling import mean_of_valid
from zoo.recurrent import RecurrentCaptioner, Rows, init_words_and_vocabulary
from zoo.shared_official_names.luo_lstm import HINT, WORD_SIZES, WORDS


class ShowTell(RecurrentCaptioner):
    """LSTM layers over the pooled image and then the words.

    Args:
        d_model: R, of every layer.
        d_embedding: of words and image; R by default.
        n_layers: LSTM layers; both papers have one.
        dropout: between layers and before the logits.
        cell: "lstm" is Show and Tell's, without biases; "maxout" the FC model's, with maxout candidates and biases.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int,
        d_model: int = 512,
        dropout: float = 0.5,
        max_len: int = 20,
        d_embedding: int | None = None,
        n_layers: int = 1,
        cell: Literal["lstm", "maxout"] = "lstm",
    ) -> None:
        super().__init__(VisualSpec("pooled", visual_dim), vocab_size, max_len, d_model)
        check_choice("cell", cell, ("lstm", "maxout"))
        check_at_least_1(n_layers=n_layers)
        d_embedding = d_embedding or d_model
        self.image_embedding = nn.Linear(visual_dim, d_embedding)
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        self.vocabulary = nn.Linear(d_model, vocab_size)
        init_words_and_vocabulary(self.embedding, self.vocabulary)
        maxout = cell == "maxout"
        self.lstm = LSTMCell(d_embedding, d_model, d_model, maxout=maxout, bias=maxout)
        self.upper_layers = nn.ModuleList(
            LSTMCell(d_model, d_model, d_model, maxout=maxout, bias=maxout) for _ in range(n_layers - 1)
        )
        self.states = tuple(f"{part}{index}" for index in range(n_layers) for part in ("hidden", "cell"))
        self.layer_dropout = nn.Dropout(dropout)
        self.output_dropout = nn.Dropout(dropout)

    def encode(self, visual: Visual) -> Memory:
        features, mask = self.valid_features(visual)
        return Memory(self.image_embedding(mean_of_valid(features, mask))[:, None], mask.any(1, keepdim=True))

    def first_rows(self, memory: Memory) -> Rows:
        """The state after the image, which is read like a word."""
        return self.advance(self.lstm.project(memory.features[:, 0]), super().first_rows(memory), {})[1]

    def advance(self, inputs: Tensor, rows: Rows, images: dict[str, Tensor]) -> tuple[Tensor, Rows]:  # noqa: ARG002
        hidden, cell = self.lstm(inputs, rows["hidden0"], rows["cell0"])
        new_rows = {"hidden0": hidden, "cell0": cell}
        upper_layers: Iterable[LSTMCell] = self.upper_layers  # type: ignore[assignment]  # ModuleList is not generic
        for index, layer in enumerate(upper_layers, 1):
            below = self.layer_dropout(hidden)
            hidden, cell = layer.read(below, rows[f"hidden{index}"], rows[f"cell{index}"])
            new_rows |= {f"hidden{index}": hidden, f"cell{index}": cell}
        return hidden, new_rows


_TORCH_LSTM = re.compile(r"core\.weight_(ih|hh)_l(\d+)")


class _ShowTellConverter(Converter):
    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        layers = {}
        for key, tensor in official.items():
            match = _TORCH_LSTM.fullmatch(key)
            if match:
                index = int(match[2])
                layer = f"upper_layers.{index - 1}" if index else "lstm"
                part = "input" if match[1] == "ih" else "recurrent"
                layers[f"{layer}.{part}.weight"] = reorder_gates(tensor)
        return layers | super().tensors(official)

    def sizes(self, official: Mapping[str, Tensor]) -> dict[str, Any]:
        image = "fc_embed" if "fc_embed.weight" in official else "img_embed"
        sizes = self.read_sizes(official, {**self.size_axes, "visual_dim": (f"{image}.weight", 1)})
        indices = [int(match[2]) for match in map(_TORCH_LSTM.fullmatch, official) if match]
        return {**sizes, "n_layers": 1 + max(indices)} if indices else sizes


CONVERTER = _ShowTellConverter(
    source="ImageCaptioning.pytorch's Show and Tell or FC model",
    renames=(
        *WORDS,
        (r"^(?:img|fc)_embed\.", "image_embedding."),
        (r"^_?core\.i2h\.", "lstm.input."),
        (r"^_?core\.h2h\.", "lstm.recurrent."),
    ),
    unused=_TORCH_LSTM.pattern,
    size_axes={**WORD_SIZES, "d_embedding": ("embed.weight", 1)},
    hint=HINT,
)
"""Weights of `show_tell`, `fc` and `newfc`: see `zoo.shared_official_names.luo_lstm`."""
