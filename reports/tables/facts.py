"""What stored runs and rows say of themselves, in words: model, objective, changed settings, what was seen before."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from reports.numbers import percent
from results.records import stages_of
from results.runs.leaderboard import Row
from results.runs.run import Run, StoredPretraining
from results.runs.standings import NEAR_ZERO
from results.statistics.learning import mean_learning

NOT_STATED = "not stated"
_OBJECTIVES = {"cross_entropy": "XE", "xe": "XE", "self_critical": "SCST", "scst": "SCST", "reinforce": "REINFORCE"}
_LONG = re.compile(r"(?<![\w.])\d+\.\d{7,}(?![\w.])")
_DRAWN = ("scenes", "scenes-6k")
_NOCAPS = "nocaps"


@dataclass(frozen=True, slots=True)
class ModelFacts:
    family: str
    paper: str
    year: str
    source: str
    summary: str
    visual: str
    pretraining: StoredPretraining | None


def card(run: Run) -> ModelFacts:
    """The card that was stored with the run; the family is part of the name where there is none."""
    stored_card = run.card
    stated = {
        name: str(stored_card.get(name) or "") for name in ("family", "paper", "year", "source", "summary", "visual")
    }
    stated["summary"] = stated["summary"] or run.config.get("what", "")
    stated["family"] = stated["family"] or run.model.partition("/")[0]
    return ModelFacts(**stated, pretraining=run.pretraining)


def objective(run: Run) -> str:
    """What the run was trained for, stage by stage: "XE", "XE + SCST" ...; "untrained" for references."""
    if run.role == "reference":
        return "untrained"
    if run.kind == "captions":
        return str(run.card.get("objective") or NOT_STATED)
    if run.kind == "stored":
        return "stored"
    if run.kind in {"pretrained", "hub"} or {"pretrained", "weights"} & run.config.keys():
        return "pretrained"
    names = [stage.get("objective", "") for stage in stages_of(run.config)]
    return " + ".join(dict.fromkeys(_OBJECTIVES.get(name, name) for name in names if name)) or NOT_STATED


@dataclass(frozen=True, slots=True)
class Deviations:
    preset: str
    changed: tuple[tuple[str, str, str], ...]


def deviations(config: Mapping[str, Any]) -> Deviations | None:
    """What a run changed of the preset that it was planned with, if of any: settings with both values."""
    if "shipped_preset" not in config:
        return None
    changed = []
    for deviation in config["shipped_preset"]["deviations"]:
        # Without the digits by which a binary fraction misses a decimal one.
        setting, _, values = _LONG.sub(lambda match: f"{float(match[0]):.6g}", deviation).partition(": ")
        before, arrow, after = values.partition(" → ")
        changed.append((setting, before, after) if arrow else (deviation, "", ""))
    return Deviations(config["preset"]["name"], tuple(changed))


TRAINING_LABELS: Final = ("still learning", "still gains", "at chance", "rate near zero")
"""The labels of `learning_label`: how a row's training ended."""


@dataclass(frozen=True, slots=True)
class Badge:
    """A symbol or a label of two or three words beside a model's name, and the sentences that these stand for."""

    label: str
    sentence: str
    symbol: str

    @property
    def note(self) -> str:
        return f"{self.label}: {self.sentence}"


PLUG_IN: Final = "plug-in"
UNKNOWN_PRETRAINING: Final = Badge(
    "pretraining unknown",
    "The weights were trained before this run, and on what is not documented here. "
    "The images of this split may have been among it.",
    "?",
)


def contamination(pretraining: StoredPretraining | None, dataset: str, split: str) -> Badge | None:
    """What the pretraining means for scores on a split of a data set, by the data set's name; None without any."""
    if pretraining is None:
        return None
    if not pretraining.data_sets:
        return UNKNOWN_PRETRAINING
    trained_on = _plain(dataset).replace(_NOCAPS, "")
    evaluated = _NOCAPS if split == _NOCAPS or _plain(dataset).startswith(_NOCAPS) else trained_on
    captions = _found(pretraining.captions_of, trained_on)
    images = None if dataset in _DRAWN else _found(pretraining.overlap, evaluated)
    other_data = ", ".join(name for name in pretraining.captions_of if name != captions)
    if not pretraining.captions_of:
        label = "pretrained"
        symbol = "†"
        trained = f"Before this run the model was trained without captions, on {'; '.join(pretraining.data_sets)}."
    elif captions is None:
        label = "other captions seen"
        symbol = "†"
        trained = f"Before this run the model was trained on captions of other data sets: {other_data}."
    else:
        label = f"{captions} captions seen"
        symbol = "‡"
        suffix = f", and of others: {other_data}" if other_data else ""
        trained = f"Before this run the model was trained on captions of {dataset}, the run's own data set{suffix}."
    images_sentence = "No overlap with the images of this split is documented."
    if images:
        label = "images possibly seen"
        symbol = "§"
        images_sentence = f"It may have seen images of this split. {pretraining.overlap[images]}"
    elif dataset in _DRAWN:
        images_sentence = f"The images of {dataset} are drawn by captionbench, so it has seen none of them."
    return Badge(label, f"{trained} {images_sentence}", symbol)


def _found(names: Iterable[str], dataset: str) -> str | None:
    """The first of these data sets that the plain name of another names too, as `COCO` and `dataset_coco`."""
    return next((name for name in names if _plain(name) and _plain(name) in dataset), None)


def _plain(name: str) -> str:
    return "".join(character for character in name.lower() if character.isalnum())


def learning_label(row: Row) -> Badge | None:
    """What a reader must know of how the row's training ended; None if nothing."""
    if row.still_gains and row.gain is not None:  # what a longer training gave says more than how this one ended
        times = f"{row.gain.times:g} times the updates"
        return Badge("still gains", f"{times} gave more than the margin; the table by budget says how much", "↗")
    if row.training_end == "at chance":
        return Badge("at chance", "no validation was above one point of CIDEr-D", "○")
    if row.gain is not None:
        return None
    if row.training_end == "rate near zero":
        return Badge("rate near zero", NEAR_ZERO, "↓")
    learning = mean_learning(row.learning.values())
    if not row.still_learning or learning.rise is None or learning.error is None:
        return None
    seeds = f"on average of {len(row.learning)} seeds, " if len(row.learning) > 1 else ""
    sentence = (
        f"{seeds}validation CIDEr-D rose by {percent(learning.rise)} points over the last quarter of its validations "
        f"(standard error {percent(learning.error)})"
    )
    return Badge("still learning", sentence, "↗")
