"""What every experiment tracker does, and what of a run it is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """A run as trackers list it.

    Attributes:
        key: of the run; a run that is resumed goes on under it.
        group: what the run is compared with: data set and schedule.
        settings: flat names to values.
        folder: of the workspace for trackers' files.
    """

    key: str
    model: str
    seed: int
    group: str
    settings: Mapping[str, Any]
    folder: Path


class Tracker(Protocol):
    """Shows the numbers of one run; open from its construction to `close`."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Show values of an optimiser step, counted over all stages from 1."""

    def summarise(self, values: Mapping[str, float]) -> None:
        """Show final scores and costs."""

    def close(self, *, finished: bool) -> None:
        """Write what is not written; `finished` says whether the run came to its end."""
