"""How a run's settings differ from the shipped preset that it names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_LONG = re.compile(r"(?<![\w.])\d+\.\d{7,}(?![\w.])")


@dataclass(frozen=True, slots=True)
class Deviations:
    """A preset by name, and its settings that the run changed as (setting, the preset's value, the run's).

    `unknown` says why it is not known what was changed, "" where it is.
    """

    preset: str
    changed: tuple[tuple[str, str, str], ...]
    unknown: str = ""


def deviations(config: Mapping[str, Any]) -> Deviations | None:
    """What a run's configuration says of its preset; None where it names none."""
    preset, shipped = config.get("preset"), config.get("shipped_preset")
    name = preset.get("name") if isinstance(preset, Mapping) else None
    if not name:
        return None
    found = shipped.get("deviations") if isinstance(shipped, Mapping) else None
    if not isinstance(found, list):
        return Deviations(str(name), (), "the run did not record how it differs")
    return Deviations(str(name), tuple(_changed(str(each)) for each in found))


def _changed(said: str) -> tuple[str, str, str]:
    """ "size.max_len: 74 → 20" in its three parts; what is said in another form has no values."""
    setting, _, values = said.partition(": ")
    before, arrow, after = values.partition(" → ")
    return (setting, _short(before), _short(after)) if arrow else (said, "", "")


def _short(value: str) -> str:
    """Without the digits by which a binary fraction misses a decimal one."""
    return _LONG.sub(lambda number: f"{float(number[0]):.6g}", value)
