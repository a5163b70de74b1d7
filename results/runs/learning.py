"""Whether the runs of a leaderboard had finished learning, from their stored epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from results.records import EpochRecord
from results.runs.finished_runs import FinishedRun
from results.statistics.learning import Learning, idle_share, learning
from results.store.schema import Epoch


class _Epoch(NamedTuple):
    """How an epoch ended."""

    val_cider: float | None
    learning_rate: float


def learning_of_runs(connection: Connection, runs: Sequence[FinishedRun]) -> dict[int, Learning]:
    """How the training of each run ended, by run id; runs without epochs of their own were not trained here."""
    trained = {run.id: run for run in runs}
    query = select(Epoch.run_id, Epoch.stage, Epoch.val_cider, Epoch.learning_rate)
    stages: dict[int, dict[int, list[_Epoch]]] = {}
    for run_id, stage, score, rate in connection.execute(query.order_by(Epoch.run_id, Epoch.stage, Epoch.epoch)):
        if run_id in trained:
            stages.setdefault(run_id, {}).setdefault(stage, []).append(_Epoch(score, rate))
    return {run_id: _learning(found, trained[run_id].config) for run_id, found in stages.items()}


def learning_of_epochs(epochs: Sequence[EpochRecord], config: Mapping[str, Any]) -> Learning | None:
    """How a training with these epochs under this configuration ended; None without epochs."""
    stages: dict[int, list[_Epoch]] = {}
    for epoch in epochs:
        stages.setdefault(epoch.stage, []).append(_Epoch(epoch.val_cider, epoch.learning_rate))
    return _learning(stages, config) if stages else None


def _learning(stages: Mapping[int, Sequence[_Epoch]], config: Mapping[str, Any]) -> Learning:
    last = max(stages)
    planned = _setting(config, last, "epochs")
    epochs = planned if isinstance(planned, int) else None
    rate = _setting(config, last, "learning_rate")
    stepwise = isinstance(rate, Mapping) and rate.get("annealing") == "step"
    found = learning(
        [ended.val_cider for ended in stages[last] if ended.val_cider is not None],
        stopped_early=epochs is not None and len(stages[last]) < epochs,
        idle=idle_share([ended.learning_rate for ended in stages[last]], stepwise=stepwise),
    )
    return replace(found, stage=last, epochs=epochs)


def _setting(config: Mapping[str, Any], stage: int, name: str) -> object:
    """Of a stage, as planned; None where the stored configuration does not say."""
    try:
        return config["preset"]["schedule"]["stages"][stage][name]
    except (KeyError, IndexError, TypeError):
        return None
