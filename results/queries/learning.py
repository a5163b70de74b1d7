"""Whether the runs of a leaderboard had finished learning, from their stored epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, select

from results.db.schema import Epoch
from results.queries.finished_runs import FinishedRun
from results.records import EpochRecord
from results.statistics.learning import Learning, learning


def learning_of_runs(connection: Connection, runs: Sequence[FinishedRun]) -> dict[int, Learning]:
    """How the training of each run ended, by run id; runs without epochs of their own were not trained here."""
    trained = {run.id: run for run in runs}
    query = select(Epoch.cell_id, Epoch.stage, Epoch.val_cider).order_by(Epoch.cell_id, Epoch.stage, Epoch.epoch)
    stages: dict[int, dict[int, list[float | None]]] = {}
    for run_id, stage, score in connection.execute(query):
        if run_id in trained:
            stages.setdefault(run_id, {}).setdefault(stage, []).append(score)
    return {run_id: _learning(found, trained[run_id].config) for run_id, found in stages.items()}


def learning_of_epochs(epochs: Sequence[EpochRecord], config: Mapping[str, Any]) -> Learning | None:
    """How a training with these epochs under this configuration ended; None without epochs."""
    stages: dict[int, list[float | None]] = {}
    for epoch in epochs:
        stages.setdefault(epoch.stage, []).append(epoch.val_cider)
    return _learning(stages, config) if stages else None


def _learning(stages: Mapping[int, Sequence[float | None]], config: Mapping[str, Any]) -> Learning:
    last = max(stages)
    planned = _planned_epochs(config, last)
    scores = [score for score in stages[last] if score is not None]
    found = learning(scores, stopped_early=planned is not None and len(stages[last]) < planned)
    return replace(found, stage=last, epochs=planned, annealing=_annealing(config, last))


def _annealing(config: Mapping[str, Any], stage: int) -> dict[str, float]:
    """The settings of a stage's learning rate that count epochs: those of annealing by steps."""
    try:
        rate = config["preset"]["schedule"]["stages"][stage]["learning_rate"]
        stepwise = {name: rate[name] for name in ("from_epoch", "every_epochs") if name in rate}
    except (KeyError, IndexError, TypeError):
        return {}
    return stepwise if rate.get("annealing") == "step" else {}


def _planned_epochs(config: Mapping[str, Any], stage: int) -> int | None:
    """The epochs that a stage was planned with; None where the stored configuration does not say."""
    try:
        planned = config["preset"]["schedule"]["stages"][stage]["epochs"]
    except (KeyError, IndexError, TypeError):
        return None
    return planned if isinstance(planned, int) else None
