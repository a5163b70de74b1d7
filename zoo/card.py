"""Model cards: descriptions of models that need neither a built model nor torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from zoo.kinds import GraphKind, VisualKind

if TYPE_CHECKING:
    from zoo.captioner import Captioner


@dataclass(frozen=True, slots=True)
class Pretraining:
    """The pretraining data of a model's weights, as stated by papers and model cards.

    Attributes:
        data_sets: all data sets that any part was trained on, including texts and labels.
        captions: the captions, and their approximate number.
        captions_of: the data sets of these captions, such as `COCO`; empty if there are none.
        overlap: by evaluation data set, why some of its evaluation images may have been seen.
        source: where this is stated.
    """

    data_sets: tuple[str, ...]
    captions: str
    captions_of: tuple[str, ...]
    overlap: Mapping[str, str]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedWeights:
    """Weights that the authors released, and the decoding of their evaluation (`bench import-weights`).

    Attributes:
        pretraining: training data of the weights, which exclude Karpathy's validation and test splits.
        beam_size, max_len, length_penalty, count_bos, cut_unfinished: as in a preset's `decoding`; without a `max_len`,
            that of the model.
        preparation: preparation of captions; None if begin, end and padding are the number 0, which the vocabulary
            leaves out.
        specials: names of padding, begin, end and unknown word in the vocabulary, if not those of the preparation.
        backbone_tensors: prefix of the names of a backbone's tensors; None if no checkpoint contains one.
        interpolation: how pictures are resized for that backbone.
    """

    pretraining: Pretraining
    beam_size: int
    max_len: int | None = None
    length_penalty: float = 0.0
    count_bos: bool = False
    cut_unfinished: bool = False
    preparation: str | None = None
    specials: tuple[str, ...] = ()
    backbone_tensors: str | None = None
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"


NOT_DOCUMENTED = Pretraining((), "not documented", (), {}, "not documented")


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Description of a model, available without building it.

    Attributes:
        name: `family` or `family/variant`, lower case.
        entry: "module:attribute" of the constructor, imported on creation; a plug-in may give the class itself.
        paper: authors, title, venue.
        visual: the kind of visual input with the preset's arguments.
        graph: the kind of scene graph that it reads (`zoo.captioner.VisualSpec`).
        arguments: the preset, as keyword arguments of the constructor.
        tiny: arguments on top of the preset that give a model small enough for unit tests.
        small: sizes outside the size contract (`SIZES`) for small runs, on top of the preset.
        in_all: whether `all` includes this variant.
        hub: for a pretrained model, the repository of its weights on the Hugging Face Hub; its constructor takes
            their `folder`, and has random weights without it.
        pretraining: training data of its weights before the run; None without pretraining.
        files: files that its code reads; `register_model` sets them.
        released: the authors' weights, which `bench import-weights` stores as a run; None where there are none.
    """

    name: str
    entry: str | Callable[..., Captioner]
    summary: str
    paper: str
    year: int
    source: str
    licence: str
    visual: VisualKind
    arguments: Mapping[str, Any] = field(default_factory=dict)
    tiny: Mapping[str, Any] = field(default_factory=dict)
    small: Mapping[str, Any] = field(default_factory=dict)
    in_all: bool = False
    hub: str = ""
    pretraining: Pretraining | None = None
    files: tuple[Path, ...] = ()
    graph: GraphKind = "none"
    released: ReleasedWeights | None = None

    @property
    def has_backbone(self) -> bool:
        """Whether the model owns a backbone and is a `zoo.HasBackbone`."""
        return "backbone" in self.arguments


def variants(
    rows: Mapping[str, tuple[str, Mapping[str, Any]]], *, arguments: Mapping[str, Any], **card: Any
) -> list[ModelCard]:
    """Cards of models that share `arguments` and the fields in `card`.

    Args:
        rows: by name, the summary and the arguments that differ.
    """
    return [
        ModelCard(name=name, summary=summary, arguments={**arguments, **changes}, **card)
        for name, (summary, changes) in rows.items()
    ]


def trained_on_coco(visual: str, source: str, overlap: Mapping[str, str] | None = None) -> Pretraining:
    """Training data of weights trained on COCO's captions in Karpathy's split.

    Args:
        visual: training data of the image features.
        source: where this is stated.
        overlap: as in `Pretraining`.
    """
    captions = "Five to seven human captions of each of 113,287 images of COCO."
    data_sets = (visual, "COCO: Karpathy's training split with restval")
    return Pretraining(data_sets, captions, ("COCO",), overlap or {}, source)
