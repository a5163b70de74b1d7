"""Model cards: what is known of a model without building it. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


NOT_DOCUMENTED = Pretraining((), "not documented", (), {}, "not documented")


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Description of a model, available without building it.

    Attributes:
        name: `family` or `family/variant`, lower case.
        entry: "module:attribute" of the constructor, imported on creation; a plug-in may give the class itself.
        paper: authors, title, venue.
        visual: the kind of visual input with the preset's arguments.
        graph: the kind of scene graph that it reads beside regions (`zoo.captioner.VisualSpec`).
        arguments: the preset, as keyword arguments of the constructor.
        tiny: arguments on top of the preset that give a model small enough for unit tests.
        small: sizes outside the size contract (`SIZES`) for small runs, on top of the preset.
        in_all: whether `all` includes this variant.
        hub: for a pretrained model, the repository of its weights on the Hugging Face Hub; its constructor takes
            their `folder`, and has random weights without it.
        pretraining: training data of its weights before the run; None without pretraining.
        files: what its code reads besides its modules; `register_model` sets it.
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

    @property
    def has_backbone(self) -> bool:
        """Whether the model owns a backbone and is a `zoo.HasBackbone`."""
        return "backbone" in self.arguments


def variants(
    rows: Mapping[str, tuple[str, Mapping[str, Any]]], *, arguments: Mapping[str, Any], **card: Any
) -> list[ModelCard]:
    """Cards of models that differ in name, summary, and arguments on top of those in common.

    Args:
        rows: by name, the summary and the model's own arguments.
    """
    return [
        ModelCard(name=name, summary=summary, arguments={**arguments, **own}, **card)
        for name, (summary, own) in rows.items()
    ]
