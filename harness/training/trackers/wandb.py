"""Weights & Biases, online, or without a network by `WANDB_MODE=offline`."""

from __future__ import annotations

from collections.abc import Mapping

from harness.training.trackers.interface import TrackedRun


class WandbTracker:
    """A run of the project that `WANDB_PROJECT` names, by default `captionbench`."""

    def __init__(self, run: TrackedRun) -> None:
        import os

        import wandb

        run.folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "captionbench"),
            id=run.key,
            name=f"{run.model} seed {run.seed}",
            group=run.group,
            config=dict(run.settings),
            dir=str(run.folder),
            resume="allow",
            settings=wandb.Settings(console="off", silent=True),
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Values of a step; those of steps before a resumed run's last are dropped by W&B."""
        self._run.log(dict(values), step=step)

    def summarise(self, values: Mapping[str, float]) -> None:
        """The run's summary."""
        self._run.summary.update(dict(values))

    def close(self, *, finished: bool) -> None:
        """End the run, as crashed where it did not finish."""
        self._run.finish(exit_code=0 if finished else 1)
