"""Contamination: evaluation data that a model may have been trained on before its run, as a label and sentences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from results.runs.run import Pretraining

_DRAWN = "scenes"
_NOCAPS = "nocaps"


@dataclass(frozen=True, slots=True)
class Contamination:
    """A label of two or three words, and the sentences that it stands for."""

    label: str
    sentence: str


def contamination(pretraining: Pretraining | None, dataset: str, split: str) -> Contamination | None:
    """What the pretraining means for scores on a split of a data set, by the data set's name; None without any."""
    if pretraining is None:
        return None
    if not pretraining.data_sets:
        unknown = "The weights were trained before this run, and on what is not documented here."
        return Contamination("pretraining unknown", f"{unknown} The images of this split may have been among it.")
    trained_on = _plain(dataset).replace(_NOCAPS, "")
    evaluated = _NOCAPS if split == _NOCAPS or _plain(dataset).startswith(_NOCAPS) else trained_on
    captions = _found(pretraining.captions_of, trained_on)
    images = None if dataset == _DRAWN else _found(pretraining.overlap, evaluated)
    if images:
        label = "images possibly seen"
    elif captions:
        label = f"{captions} captions seen"
    else:
        label = "other captions seen" if pretraining.captions_of else "pretrained"
    sentences = (_caption_sentence(pretraining, dataset, captions), _image_sentence(pretraining, dataset, images))
    return Contamination(label, " ".join(sentences))


def _caption_sentence(pretraining: Pretraining, dataset: str, captions: str | None) -> str:
    if not pretraining.captions_of:
        return f"Before this run the model was trained without captions, on {'; '.join(pretraining.data_sets)}."
    others = ", ".join(name for name in pretraining.captions_of if name != captions)
    if captions is None:
        return f"Before this run the model was trained on captions of other data sets: {others}."
    beside = f", and of others: {others}" if others else ""
    return f"Before this run the model was trained on captions of {dataset}, the run's own data set{beside}."


def _image_sentence(pretraining: Pretraining, dataset: str, images: str | None) -> str:
    if images:
        return f"It may have seen images of this split. {pretraining.overlap[images]}"
    if dataset == _DRAWN:
        return f"The images of {dataset} are drawn by captionbench, so it has seen none of them."
    return "No overlap with the images of this split is documented."


def _found(names: Iterable[str], dataset: str) -> str | None:
    """The first of these data sets that the plain name of another names too, as `COCO` and `dataset_coco`."""
    return next((name for name in names if _plain(name) and _plain(name) in dataset), None)


def _plain(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())
