"""The `Experiment` of a command: its file, overridden by the options that were typed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import typer

from harness.config.archive import is_archive
from harness.config.experiment import (
    Experiment,
    change_content,
    is_run,
    put_value,
    read_experiment,
    validate_experiment,
)
from harness.config.features import region_config
from harness.config.limits import MAX_COUNT
from harness.utils.errors import BenchError
from harness.utils.files import require_utf8, shortened


def experiment_of(context: typer.Context, file: Path | None, *, environment: bool = True) -> Experiment:
    """The experiment of a command.

    Typed options override the file, and the file overrides environment variables, which are read if `environment`.
    """
    content: dict[str, Any] = {}
    if environment:
        for name, value in _options(context, "ENVIRONMENT").items():
            field, parse = _FIELDS[name]
            put_value(content, field, parse(value))
    if file is not None:
        if is_archive(file):
            raise BenchError(f"{file} has one run, not an experiment", f"execute it: bench run {file}")
        file_content = read_experiment(file)
        if is_run(file_content):
            raise BenchError(f"{file} is the configuration of one run", f"execute it: bench run {file}")
        content = _merged(content, file_content)
    typed = typed_options(context)
    for name, value in typed.items():
        if name in _FIELDS:
            field, parse = _FIELDS[name]
            put_value(content, field, parse(value))
    if {"regions", "region_count"} & typed.keys():
        put_value(content, "features.regions", _regions(content, typed))
    change_content(content, tuple(typed.get("change") or ()))
    return validate_experiment(content, str(file) if file is not None else "the options")


def typed_options(context: typer.Context) -> dict[str, Any]:
    """The values of the options that were typed; BenchError if one is not UTF-8."""
    typed = _options(context, "COMMANDLINE")
    _refuse_undecodable(typed)
    return typed


def _options(context: typer.Context, origin: Literal["COMMANDLINE", "ENVIRONMENT"]) -> dict[str, Any]:
    """The values of a command's options that come from the command line, or from environment variables."""
    options = {}
    for name, value in context.params.items():
        source = context.get_parameter_source(name)
        if value is not None and source is not None and source.name == origin:
            options[name] = value
    return options


def _merged(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The nested values of `base`, overridden by those of `overrides`."""
    merged = dict(base)
    for name, value in overrides.items():
        if isinstance(value, dict) and isinstance(merged.get(name), dict):
            merged[name] = _merged(merged[name], value)
        else:
            merged[name] = value
    return merged


def _refuse_undecodable(typed: Mapping[str, Any]) -> None:
    """BenchError if a value is not UTF-8: an experiment is stored as text."""
    for option, value in typed.items():
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, str | Path):
                name = {"change": "--set", "file": "FILE"}.get(option, f"--{option.replace('_', '-')}")
                require_utf8(Path(part), name, "runs are stored as text: give another")


def _regions(content: Mapping[str, Any], typed: Mapping[str, Any]) -> dict[str, Any] | None:
    """The regions of `--regions` and `--region-count`; the file gives the option that was not typed."""
    features = content.get("features")
    file_regions = (features.get("regions") if isinstance(features, dict) else None) or {}
    if isinstance(file_regions, str):
        file_regions = {"source": file_regions}
    source = typed.get("regions", file_regions.get("source"))
    keep = typed.get("region_count", file_regions.get("keep", "all"))
    regions = region_config(source, keep)
    return None if regions is None else {**file_regions, "source": regions.source, "keep": regions.keep}


def _pairs(option: str) -> Callable[[Sequence[str]], dict[str, str]]:
    """A parser for the values KEY=VALUE of a repeatable option."""

    def parse(texts: Sequence[str]) -> dict[str, str]:
        pairs: dict[str, str] = {}
        for text in texts:
            key, equals, value = text.partition("=")
            if not equals or not value:
                raise BenchError(f"{option} {shortened(text)!r} has no '='", f"write {option} KEY=VALUE")
            pairs[key.strip()] = value
        return pairs

    return parse


def _budgets(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    budgets = [int(word) for word in words if word.isascii() and word.isdecimal() and len(word) <= len(str(MAX_COUNT))]
    if len(budgets) < len(words) or min(budgets) < 1 or budgets != sorted(set(budgets)):
        hint = "write multiples of the preset's epochs: --budgets 1,2,4"
        raise BenchError(f"--budgets {shortened(text)!r} is not an ascending list of positive integers", hint)
    return tuple(budgets)


def _jobs(text: str) -> str | int:
    from harness.cli.inputs import number_of_jobs

    return "auto" if text == "auto" else number_of_jobs(text)


def _same(value: Any) -> Any:
    return value


_FIELDS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "models": ("models", _same),
    "pretrained": ("pretrained", _pairs("--pretrained")),
    "hub": ("hub", _pairs("--hub")),
    "cards": ("cards", _same),
    "allow_subset": ("allow_subset", _same),
    "plugin": ("plugins", tuple),
    "data": ("data.annotations", _same),
    "images": ("data.images", _same),
    "skip_bad_images": ("data.skip_bad_images", _same),
    "limit": ("data.limit", _same),
    "tokenizer": ("tokenizer", _same),
    "language": ("language", _same),
    "backbone": ("features.backbone", _same),
    "backbone_weights": ("features.weights", str),
    "backbone_option": ("features.options", _pairs("--backbone-option")),
    "image_size": ("features.image_size", _same),
    "normalisation": ("features.normalisation", _same),
    "graphs": ("features.graphs", _same),
    "preset": ("preset", _same),
    "seeds": ("seeds", _same),
    "first_seed": ("first_seed", _same),
    "budgets": ("budgets", _budgets),
    "tuned": ("tuned", tuple),
    "precision": ("precision", _same),
    "more_metrics": ("metrics.more", _same),
    "clip": ("metrics.clip", _same),
    "bert": ("metrics.bert", _same),
    "instances": ("metrics.instances", tuple),
    "reuse": ("reuse", _same),
    "device": ("execution.device", _same),
    "devices": ("execution.devices", _same),
    "jobs": ("execution.jobs", _jobs),
    "executor": ("execution.executor", _same),
    "cpus_per_run": ("execution.cpus_per_run", _same),
    "gpus_per_run": ("execution.gpus_per_run", _same),
    "memory_per_run": ("execution.memory_per_run", _same),
    "hours_per_run": ("execution.hours_per_run", _same),
    "log": ("execution.log", tuple),
    "workspace": ("workspace", _same),
    "db": ("db", _same),
}
"""The experiment's field that each parameter of a command sets, and the function that parses its value."""
