"""MLflow, on the server of `MLFLOW_TRACKING_URI`, or without one in a SQLite file of the workspace."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from harness.training.trackers.interface import TrackedRun

_EXPERIMENT = "captionbench"
_KEY = "captionbench.key"


class MlflowTracker:
    """A run of the experiment that `MLFLOW_EXPERIMENT_NAME` names, by default `captionbench`."""

    def __init__(self, run: TrackedRun) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        run.folder.mkdir(parents=True, exist_ok=True)
        place = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{run.folder.resolve() / 'mlflow.db'}"
        self._client = MlflowClient(place)
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _EXPERIMENT)
        experiment = self._client.get_experiment_by_name(name)
        where = self._client.create_experiment(name) if experiment is None else experiment.experiment_id
        known = self._client.search_runs([where], f"tags.`{_KEY}` = '{run.key}'", max_results=1)
        if known:
            self._id = known[0].info.run_id
            self._client.update_run(self._id, "RUNNING")
            return
        tags = {_KEY: run.key, "group": run.group}
        self._id = self._client.create_run(where, run_name=f"{run.model} seed {run.seed}", tags=tags).info.run_id
        settings = [Param(name, str(value)[:500]) for name, value in run.settings.items()]
        self._client.log_batch(self._id, params=settings[:100])

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Metrics of a step."""
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._client.log_batch(self._id, metrics=[Metric(name, value, now, step) for name, value in values.items()])

    def summarise(self, values: Mapping[str, float]) -> None:
        """Metrics of step 0."""
        self.log(0, values)

    def close(self, *, finished: bool) -> None:
        """End the run."""
        self._client.set_terminated(self._id, "FINISHED" if finished else "FAILED")
