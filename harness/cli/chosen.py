"""The models and the preset that `bench flops` and `bench cost measure` are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.utils.errors import BenchError

if TYPE_CHECKING:
    from harness.config.preset import Preset


def chosen_preset(preset: str | None, change: list[str] | None) -> Preset | None:
    """The preset of `--preset` with the changes of `--set`; None where none is named."""
    from harness.config.load import load_preset

    if preset is None and change:
        raise BenchError("--set changes a preset, and none is named", "add --preset paper, for example")
    return None if preset is None else load_preset(preset, tuple(change or ()))


def chosen_models(models: str) -> list[str]:
    """The models of a comma-separated list of names and patterns, each once; ZooError for a name that is none."""
    from zoo.registry import model_card, select_models

    chosen: dict[str, None] = {}
    for pattern in filter(None, map(str.strip, models.split(","))):
        found = select_models(pattern)
        if not found:
            model_card(pattern)  # raises, naming the nearest
        chosen.update(dict.fromkeys(found))
    if not chosen:
        raise BenchError("--models names no model", "write --models all, or see `bench models` for the names")
    return list(chosen)
