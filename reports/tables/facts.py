"""Facts about a run's model and training from its stored configuration, whatever made the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from results.runs.run import Pretraining, Run

_OBJECTIVES = {"cross_entropy": "XE", "xe": "XE", "self_critical": "SCST", "scst": "SCST", "reinforce": "REINFORCE"}
NOT_STATED = "not stated"


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A model as a run of it describes it; fields that the run does not state are empty."""

    family: str
    paper: str
    year: str
    source: str
    summary: str
    visual: str
    pretraining: Pretraining | None


def card(run: Run) -> ModelCard:
    """The card that was stored with the run; the family is part of the name where there is none."""
    found = run.config.get("card")
    fields: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    stated = {name: str(fields.get(name) or "") for name in ("family", "paper", "year", "source", "summary", "visual")}
    if not stated["summary"] and isinstance(run.config.get("what"), str):
        stated["summary"] = run.config["what"]
    stated["family"] = stated["family"] or run.model.partition("/")[0]
    return ModelCard(**stated, pretraining=run.pretraining)


def objective(run: Run) -> str:
    """What the run was trained for, stage by stage: "XE", "XE + SCST" ...; "untrained" for references."""
    if run.role == "reference":
        return "untrained"
    for kind in ("pretrained", "stored"):
        if kind in run.config:
            return kind
    stages = _stages(run.config)
    names = [str(stage.get("objective", "")) for stage in stages if isinstance(stage, Mapping)]
    return " + ".join(dict.fromkeys(_OBJECTIVES.get(name, name) for name in names if name)) or NOT_STATED


def _stages(config: Mapping[str, Any]) -> list[Any]:
    found: Any = config
    for name in ("preset", "schedule", "stages"):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, list) else []
