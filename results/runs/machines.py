"""Which costs depend on the machine, and on which machine a run's were measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Phase = Literal["trained", "measured"]

_UNITS: Final = frozenset({"s", "images/s", "GMAC/s", "%", "h", "J", "W"})
_AFTER_TRAINING: Final = ("latency_", "energy_", "idle_")
"""Beginnings of costs that are measured after training, perhaps on another machine."""


@dataclass(frozen=True, slots=True)
class OtherMachine:
    """Why a row's cost is not of all its seeds, or not comparable: some ran on another machine than most of the group.

    `said` names the machines. The cost is the mean over `seeds`, those on the machine of most; where there are none, it
    is over all, and compares with no other row.
    """

    said: str
    seeds: tuple[int, ...]


def depends_on_machine(cost: str, unit: str) -> bool:
    """Whether another machine has another value: times, rates, power, and whether a time is noise."""
    return unit in _UNITS or cost == "latency_noisy"


def phase_of(cost: str) -> Phase:
    """When a cost is measured."""
    return "measured" if cost.startswith(_AFTER_TRAINING) else "trained"


def machine_of(environment: Mapping[str, Any], phase: Phase) -> str:
    """The device's name, or else the processor's, from a run's recorded environment; "" where it has none.

    What was measured right after training has no environment of its own.
    """
    apart = environment.get("measurement") if phase == "measured" else None
    return (_name(apart) if isinstance(apart, dict) else "") or _name(environment)


def machines_of_most(environments: Iterable[Mapping[str, Any]]) -> dict[Phase, str]:
    """By phase, the machine of most runs; "" where none is known."""
    found: dict[Phase, str] = {}
    known = list(environments)
    for phase in ("trained", "measured"):
        counts = Counter(name for environment in known if (name := machine_of(environment, phase)))
        found[phase] = max(counts, key=lambda name: (counts[name], name), default="")
    return found


def _name(environment: Mapping[str, Any]) -> str:
    device = environment.get("device")
    name = device.get("name") if isinstance(device, dict) else None
    return str(name or environment.get("cpu") or "")
