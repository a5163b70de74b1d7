"""`bench schedules`: how models are trained, stage by stage."""

from __future__ import annotations

from typing import Annotated

import typer

EXAMPLES = """
Examples:

  bench schedules

  bench schedules expansionnet-v2-4step
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("schedules", epilog=EXAMPLES)(schedules)


def schedules(
    name: Annotated[str | None, typer.Argument(help="A schedule, to see all its settings.")] = None,
) -> None:
    """List the training schedules and the presets that use them, or show one schedule whole."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from harness.config.load import list_presets, list_schedules, load_preset, load_schedule

    console = Console(highlight=False)
    if name is not None:
        import yaml

        content = load_schedule(name).model_dump(mode="json", exclude_none=True)
        console.print(yaml.safe_dump(content, sort_keys=False, width=100), markup=False, soft_wrap=True)
        return
    uses: dict[str, list[str]] = {}
    for preset in list_presets():
        uses.setdefault(load_preset(preset).schedule.name, []).append(preset)
    table = Table("Schedule", "What it is", "Presets", box=box.SIMPLE_HEAD, pad_edge=False)
    table.columns[0].no_wrap = table.columns[2].no_wrap = True
    for known in list_schedules():
        schedule = load_schedule(known)
        stages = ", ".join(f"{stage.name} ({stage.epochs})" for stage in schedule.stages)
        table.add_row(known, escape(f"{schedule.summary}: {stages}"), "\n".join(uses.get(known, ["-"])))
    console.print(table)
    console.print("In brackets the epochs of each stage. All settings of one: bench schedules quick")
