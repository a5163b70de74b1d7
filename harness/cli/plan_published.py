"""What papers say that training by a preset's recipe took, for `bench plan` to print beside its estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from harness.config.preset import Preset


def show_published_times(preset: Preset, console: Console) -> None:
    """Print every training time that papers print of a preset of the paper track; nothing for the controlled track."""
    from rich.markup import escape

    from results.published.matching import training_times

    if preset.recipe is None:
        return
    times = training_times(preset.name)
    if not times:
        console.print(f"training time in print: none, of the recipe {preset.name}")
        return
    console.print("training time in print, on the authors' machines:")
    for each in times:
        score = each.score
        what = ", ".join(part for part in (score.model, score.objective, score.variant) if part)
        told = f"{score.value:g} {score.unit}, {each.device_hours:,.0f} device-hours: {what}; {score.note}"
        console.print(f"  {escape(told)} ({score.source})", soft_wrap=True)
    for text in dict.fromkeys(footnote.text for each in times for footnote in each.footnotes):
        console.print(escape(text), soft_wrap=True)
