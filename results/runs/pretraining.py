"""What a model's weights were trained on before its run, from the card that is stored with the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Pretraining:
    """Data sets, captions, the data sets whose captions these are, possible overlap by data set, and who says so.

    `overlap` says by evaluated data set why images of it may have been seen. Without `data_sets` nothing is documented.
    """

    data_sets: tuple[str, ...]
    captions: str
    captions_of: tuple[str, ...]
    overlap: dict[str, str]
    source: str


def stored_pretraining(config: Mapping[str, Any]) -> Pretraining | None:
    """The pretraining in a run's configuration; None where it has none, as runs of releases before 0.3.0 have."""
    card = config.get("card")
    found = card.get("pretraining") if isinstance(card, Mapping) else None
    if not isinstance(found, Mapping):
        return None
    overlap = found.get("overlap")
    return Pretraining(
        data_sets=_texts(found.get("data_sets")),
        captions=str(found.get("captions") or ""),
        captions_of=_texts(found.get("captions_of")),
        overlap={str(name): str(why) for name, why in overlap.items()} if isinstance(overlap, Mapping) else {},
        source=str(found.get("source") or ""),
    )


def _texts(found: object) -> tuple[str, ...]:
    return tuple(map(str, found)) if isinstance(found, list | tuple) else ()
