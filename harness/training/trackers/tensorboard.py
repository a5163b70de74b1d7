"""TensorBoard: event files, which `tensorboard --logdir WORKSPACE/logs/tensorboard` shows."""

from __future__ import annotations

from collections.abc import Mapping

from harness.training.trackers.interface import TrackedRun


class TensorBoardTracker:
    """A run as a folder of event files."""

    def __init__(self, run: TrackedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(run.folder / "tensorboard" / run.key))
        lines = [f"    {name}: {value}" for name, value in run.settings.items()]
        self._writer.add_text("settings", "\n".join(lines))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Scalars of a step."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def summarise(self, values: Mapping[str, float]) -> None:
        """Scalars of step 0."""
        self.log(0, values)

    def close(self, *, finished: bool) -> None:
        """Write what is not written; event files have no state of a run but its last numbers."""
        self._writer.add_scalar("finished", float(finished), 0)
        self._writer.close()
