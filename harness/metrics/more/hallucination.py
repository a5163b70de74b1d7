"""CHAIR as one of the further metrics: its values, or why what the images show is not known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from harness.metrics.chair.metric import CHAIR, chair
from harness.metrics.chair.objects import UNKNOWN, KnownObjects
from harness.metrics.more.measured import Measured, measured, not_measured, stored_name
from results.records import Quantity

_NOTHING_NAMED: Final = "no caption names an object of the list"


def measure_hallucination(
    captions: Mapping[int, str], references: Mapping[int, Sequence[str]], objects: KnownObjects | None
) -> Measured:
    """CHAIR-i and CHAIR-s; NULL where the objects of an image are unknown."""
    if objects is None:
        return not_measured(CHAIR.names, UNKNOWN)
    depends_on = f"objects:{objects.label}"
    if reason := objects.lacking(captions):
        return not_measured(CHAIR.names, reason, depends_on)
    statistics = chair(captions, {image_id: references[image_id] for image_id in captions}, objects)
    found = measured(statistics, list(captions), depends_on, means=["CHAIR-s"])
    if not statistics.values[:, 1].any():
        found.values[stored_name("CHAIR-i", depends_on)] = Quantity(None, _NOTHING_NAMED)
    return found
