"""`bench schedules`: how models are trained, stage by stage, and with which sizes."""

from typing import Annotated

import typer

EXAMPLES = """
bench schedules
bench schedules expansionnet-v2-4step
bench schedules expansionnet-v2-paper
"""


def schedules(
    name: Annotated[str | None, typer.Argument(help="A schedule or a preset, to see all its settings.")] = None,
) -> None:
    """List the training schedules and the presets that use them, or show a schedule or a preset whole."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    from harness.config.load import PRESETS, SCHEDULES, load_preset, load_schedule

    console = Console(highlight=False)
    if name is not None:
        import yaml

        content = (load_preset if name in PRESETS else load_schedule)(name).model_dump(mode="json", exclude_none=True)
        console.print(yaml.safe_dump(content, sort_keys=False, width=100), markup=False, soft_wrap=True)
        return
    uses: dict[str, list[str]] = {}
    for preset in PRESETS:
        uses.setdefault(load_preset(preset).schedule.name, []).append(preset)
    for schedule_name in SCHEDULES:
        schedule = load_schedule(schedule_name)
        stages = ", ".join(f"{stage.name} ({stage.epochs})" for stage in schedule.stages)
        console.print(Text(schedule_name, style="bold"))
        presets = f"; presets: {', '.join(uses[schedule_name])}" if schedule_name in uses else ""
        console.print(Padding(Text(f"{schedule.summary}: {stages}{presets}"), (0, 0, 0, 2), expand=False))
    console.print("In brackets the epochs of each stage. All settings of one: bench schedules NAME")
