"""A plugin by which rank 1 of a launch fails in a model without vision, or is killed, as BENCH_TEST_RANK_1 says."""

import os
import signal
from typing import Any

from harness.training.trainer import Trainer

FAILING = "none"  # what the model that fails sees
step = Trainer._train_batch


def fail(self: Trainer, *arguments: Any) -> None:
    """Take the step, unless it is the fourth of this process."""
    if self.state.total_steps == 3:
        if os.environ["BENCH_TEST_RANK_1"] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.model.visual.kind == FAILING:
            raise RuntimeError("rank 1 is out of luck")
    step(self, *arguments)


if os.environ.get("RANK") == "1":
    Trainer._train_batch = fail  # type: ignore[method-assign]
