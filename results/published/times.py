"""How long papers say that training by a preset's recipe took."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from results.published.footnotes import Footnote, footnotes
from results.published.scores import PublishedScore, scores

_HOURS: Final = {"train_time_days": 24.0, "train_time_hours": 1.0}
_DEVICES: Final = re.compile(r"(\d+) Nvidia")

ROWS: Final[Mapping[str, str]] = {
    "aoanet-paper": "aoanet",
    "expansionnet-v1-paper": "transformer_base",  # the paper times its baseline alone
    "expansionnet-v2-paper": "expansionnet_v2",
    "expansionnet-v2-paper-frozen": "expansionnet_v2",
    "noam-paper": "vorn",  # the Object Relation Transformer
    "x-transformer-paper": "x_transformer",
}
"""By preset of the paper track, the printed rows whose training is timed; of the others no paper here prints a time."""


@dataclass(frozen=True, slots=True)
class TrainingTime:
    """One printed training time.

    Attributes:
        score: as it is printed, with its unit and note.
        device_hours: hours times devices.
    """

    score: PublishedScore
    device_hours: float

    @property
    def footnotes(self) -> list[Footnote]:
        """What a reader should know of it."""
        return footnotes(self.score)


def training_times(preset: str) -> list[TrainingTime]:
    """Every printed training time of a preset's recipe, in the papers' order; none where no paper prints one."""
    return [
        TrainingTime(score, score.value * _HOURS[score.metric] * _devices(score))
        for score in scores()
        if score.metric in _HOURS and score.model == ROWS.get(preset)
    ]


def _devices(score: PublishedScore) -> int:
    """Devices that the note counts; the notes of a single one say "single"."""
    found = _DEVICES.search(score.note)
    return int(found[1]) if found else 1
