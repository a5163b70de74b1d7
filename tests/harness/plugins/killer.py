"""A plugin that, at the moment that BENCH_TEST_KILL_AT names, ends its own process or its parent with SIGKILL."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import harness.benchmark.costs
import harness.data.backbones.filterbank
import harness.data.feature_cache
import harness.inference.generate
import harness.training.trainer
from results import Store


def _die() -> None:
    if moment == "parent":  # of this worker, which must not outlive it
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    os.kill(os.getpid(), signal.SIGKILL)


def _dying(function: Callable[..., Any], call: int, *, after: bool = False) -> Callable[..., Any]:
    """`function`, but the process dies in its n-th call, before or after the work."""
    calls = 0

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and not after:
            _die()
        result = function(*args, **kwargs)
        if calls == call:
            _die()
        return result

    return wrapped


moment = os.environ.get("BENCH_TEST_KILL_AT", "")
trainer = harness.training.trainer
if moment == "extraction":
    bank = harness.data.backbones.filterbank.FilterBank
    bank.__call__ = _dying(bank.__call__, 2)  # type: ignore[method-assign]
elif moment == "training":
    trainer.CHECKPOINT_INTERVAL_S = 0.0
    trainer.Trainer._train_batch = _dying(trainer.Trainer._train_batch, 3)  # type: ignore[method-assign]
elif moment == "parent":
    trainer.Trainer._train_batch = _dying(trainer.Trainer._train_batch, 3)  # type: ignore[method-assign]
elif moment == "between_epochs":
    trainer.Trainer._save = _dying(trainer.Trainer._save, 1)  # type: ignore[method-assign]
elif moment == "checkpointing":
    trainer.save_weights = _dying(trainer.save_weights, 2, after=True)
elif moment == "captioning":
    harness.inference.generate.beam_search = _dying(harness.inference.generate.beam_search, 3)
elif moment == "storing":
    Store.finish = _dying(Store.finish, 1)  # type: ignore[method-assign]
elif moment == "timing":
    harness.benchmark.costs.time_captioning = _dying(harness.benchmark.costs.time_captioning, 1)
elif moment == "stored":
    Store.finish = _dying(Store.finish, 1, after=True)  # type: ignore[method-assign]
elif moment:
    raise ValueError(moment)
