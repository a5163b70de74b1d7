"""Presets and schedules that come with the harness, read by name, with overrides from the command line."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml
from pydantic import ValidationError

from harness.config import Preset
from harness.errors import BenchError
from harness.training.schedule import Schedule


def _yaml_files(package: str) -> dict[str, Any]:
    folder = resources.files(package)
    return {entry.name.removesuffix(".yaml"): entry for entry in folder.iterdir() if entry.name.endswith(".yaml")}


def list_schedules() -> list[str]:
    """Names of the schedules that come with the harness."""
    return sorted(_yaml_files("harness.training.schedules"))


def load_schedule(name: str) -> Schedule:
    """Read a schedule by name; BenchError where there is none."""
    files = _yaml_files("harness.training.schedules")
    if name not in files:
        raise BenchError(f"unknown schedule {name!r}", f"choose one of: {', '.join(sorted(files))}")
    return Schedule.model_validate({"name": name} | yaml.safe_load(files[name].read_text(encoding="utf-8")))


def list_presets() -> list[str]:
    """Names of the presets that come with the harness."""
    return sorted(_yaml_files("harness.presets"))


def load_preset(name: str, overrides: tuple[str, ...] = ()) -> Preset:
    """Read a preset, embed its schedule, and apply `KEY.PATH=VALUE` overrides.

    Args:
        name: one of `list_presets()`.
        overrides: for example `schedule.stages.0.epochs=3` or `size.d_model=256`; values are read as YAML.

    Raises:
        BenchError: unknown preset, unknown key or a value of the wrong type.
    """
    files = _yaml_files("harness.presets")
    if name not in files:
        raise BenchError(f"unknown preset {name!r} (--preset)", f"choose one of: {', '.join(sorted(files))}")
    content = yaml.safe_load(files[name].read_text(encoding="utf-8"))
    schedules = _yaml_files("harness.training.schedules")
    schedule = content["schedule"]
    content["schedule"] = {"name": schedule} | yaml.safe_load(schedules[schedule].read_text(encoding="utf-8"))
    if chosen := content.pop("stages", None):
        content["schedule"]["stages"] = [stage for stage in content["schedule"]["stages"] if stage["name"] in chosen]
    content["name"] = name
    for override in overrides:
        _apply(content, override)
    try:
        return Preset.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        told = first["msg"].removeprefix("Value error, ")
        what = told if first["type"] == "value_error" else f"{where}: {told.lower()} (got {first['input']!r})"
        raise BenchError(
            f"preset {name!r}: {what}",
            "check --set; for example --set schedule.stages.0.epochs=3",
        ) from error


def _apply(content: dict[str, Any], override: str) -> None:
    """Set one `KEY.PATH=VALUE` in a nested structure; a path that does not exist names the nearest part that does."""
    path, separator, text = override.partition("=")
    if not separator:
        raise BenchError(f"--set {override!r} has no '='", "write --set KEY.PATH=VALUE, as in --set size.d_model=256")
    *parents, last = path.split(".")
    node: Any = content
    try:
        value = yaml.safe_load(text)
        for part in parents:
            node = node[int(part)] if isinstance(node, list) else node.setdefault(part, {})
        if isinstance(node, list):
            node[int(last)] = value
        else:
            node[last] = value
    except (AttributeError, IndexError, TypeError, ValueError, yaml.YAMLError) as error:
        raise BenchError(
            f"--set {override!r}: there is no such setting",
            "write --set KEY.PATH=VALUE, as in --set schedule.stages.0.epochs=3",
        ) from error
