"""Rows of captionbench 1: the configuration that this release would execute them by."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.benchmark.hub_model import HubModel
from harness.benchmark.pretrained import Pretrained
from harness.config.execution import ExecutionConfig
from harness.config.features import FeatureConfig
from harness.config.load import shipped_preset
from harness.config.model_patterns import looks_at_nothing
from harness.config.preset import Preset
from harness.config.run import (
    Conditions,
    EnsembleRun,
    MadeFrom,
    PretrainedRun,
    ReferenceRun,
    RunConfig,
    RunData,
    StoredRun,
    TrainedRun,
)
from harness.config.tuning import AppliedTuning, tuned_preset
from harness.utils.errors import BenchError
from zoo.errors import ZooError


def convert_row(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """The configuration of a run's row, as JSON.

    None if there is none in this release: of control runs, and of files of captions, which are scored again.

    Args:
        row: `model`, `kind`, `seed`, `signature`, `record` (its configuration in captionbench 1) and `execution`.
    """
    with suppress(ValidationError, BenchError, ZooError, KeyError):
        config = _convert(row)
        if config is not None:
            return config.model_dump(mode="json")
    return None


def _convert(row: Mapping[str, Any]) -> RunConfig | None:
    record = row["record"]
    execution = row["execution"]
    opening = execution["opening"]
    if opening.get("control", "none") != "none":
        return None
    common = _common(row, opening, execution)
    model = row["model"]
    seed = row["seed"]
    conditions = Conditions(**common["conditions"])
    fields = {**dict(conditions), "made_from": common["made_from"]}
    match row["kind"]:
        case "trained" | "pretrained" if "pretrained" in record:
            weights = Pretrained(model, record["pretrained"])
            fields["files"] = conditions.files.model_copy(update={"checkpoint": weights.local_folder()})
            if row["kind"] == "trained":
                return TrainedRun(model=model, seed=seed, weights=weights.name(), **fields)
            return PretrainedRun(model=model, weights=weights.name(), **fields)
        case "trained":
            return TrainedRun(model=model, seed=seed, arguments=record["arguments"], **fields)
        case "hub":
            return HubModel(**{**record["hub"], "clean": tuple(record["hub"]["clean"])}).run(fields)
        case "ensemble":
            return EnsembleRun(model=model, seed=seed, members=tuple(record["members"]), **fields)
        case "stored":
            return StoredRun(model=model, **fields)
        case "reference":
            return ReferenceRun(model=model, **fields)
        case _:
            return None


def _common(row: Mapping[str, Any], opening: Mapping[str, Any], execution: Mapping[str, Any]) -> dict[str, Any]:
    """The conditions, and how the preset came about."""
    signature = row["signature"]
    record = row["record"]
    stored_preset = Preset.model_validate(opening["preset"])
    budget = ((record.get("preset") or {}).get("schedule") or {}).get("budget", 1)
    plain = {"schedule": stored_preset.schedule.times(budget), "features": None, "seeds": 1}
    preset = stored_preset.model_copy(update=plain)
    tuned = None if execution.get("tuned") is None else AppliedTuning.model_validate(execution["tuned"])
    if tuned is not None:
        preset = tuned_preset(preset, tuned.values, tuned.stages)
    shipped = record.get("shipped_preset") or shipped_preset(preset)
    made_from = MadeFrom(
        preset=stored_preset.name,
        digest=shipped["digest"],
        deviations=tuple(shipped["deviations"]),
        schedule=signature.get("schedule", "none"),
        size=signature.get("size", "none"),
        budget=budget,
        tuned=tuned,
    )
    sees = opening["sees"]
    pictures = not all(looks_at_nothing(name) for name in sees)
    described = RunData(
        name=signature["data"],
        sees=tuple(sorted(set(sees.values()))) if pictures else (),
        graphs=tuple(opening.get("graphs", ())),
        skip_bad_images=opening.get("skip_bad_images", False),
    )
    images = opening.get("images")
    conditions = Conditions.of_inputs(
        opening["data"],
        None if images is None else Path(images),
        FeatureConfig.model_validate(opening["features"]),
        described=described,
        preset=preset,
        precision=opening.get("precision", "fp32"),
        execution=replace(_execution(execution.get("execution") or {}), device=opening.get("device", "cpu")),
    )
    return {"conditions": dict(conditions), "made_from": made_from}


def _execution(stored: Mapping[str, Any]) -> ExecutionConfig:
    return ExecutionConfig(
        devices=stored.get("devices", 1),
        jobs=stored.get("jobs", 1),
        plugins=tuple(stored.get("plugins", ())),
        log=tuple(stored.get("log", ())),
        digests=stored.get("digests", {}),
        accept_mixed=stored.get("accept_mixed", False),
    )
