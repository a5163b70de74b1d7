"""Trials by an engine: the same studies whichever makes them, also where a trial or its command is lost."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from harness.benchmark.context import RunContext
from harness.benchmark.engines.here import HereEngine
from harness.benchmark.tune.study import Study, Trial
from harness.benchmark.tune.tune import Reports, Search, TrialOrder, TrialPruned, TrialWork, do_trials
from harness.config.tuning import TRIAL_SEED, Budget, SearchSpace, TunedValues
from harness.training.losses import TrainingDivergedError
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace, locked
from tests.harness.benchmark.small_runs import FixedServices, requested, run_config
from tests.harness.conftest import bench

BUDGET = Budget(trials=6, updates=30, startup_trials=2, finalists=1, seeds=1)
DEFAULT = Trial(params={}, is_default=True)


def train(order: TrialOrder, _: object, reports: Any, __: object) -> float:
    """Three validations, worse ones with a further seed; those that its folder knows are not made again."""
    mark = order.folder / "epoch"
    best = 1 - abs((order.trial.values.learning_rate or 1.0) - 1.5) / 10 - len(order.model.name) / 100
    best -= 0.5 * (order.trial.seed - TRIAL_SEED)
    for epoch in range(int(mark.read_text()) if mark.exists() else 0, 3):
        reports.report(best * (epoch + 1) / 3, 10 * (epoch + 1), last=epoch == 2)
        mark.write_text(str(epoch + 1))
    return best


@pytest.fixture(autouse=True)
def _training(forked_workers: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    monkeypatch.setattr("harness.benchmark.tune.tune.train_trial", train)


class Tuner:
    """A search in a workspace of its own, of two models side by side or one after another."""

    def __init__(self, context: RunContext, folder: Path, jobs: int) -> None:
        workspace, config = Workspace(folder), run_config(context)
        self.said, self.context = StringIO(), context
        self.search = Search(workspace, config, SearchSpace(), BUDGET, "6x30#abcdef")
        self.services = FixedServices(workspace, context, self.said)
        self.engine = HereEngine(jobs)
        self.engine.slots(2, context.execution.device, 1, lambda: 0)

    def do(self, *models: str) -> dict[str, str]:
        return do_trials(requested(*models), self.search, self.engine, self.services)

    def study(self, model: str) -> Study:
        return self.search.read(self.search.file(requested(model)[0], self.context))


@pytest.fixture
def make(small: RunContext, tmp_path: Path) -> Callable[..., Tuner]:
    return lambda name, jobs=1: Tuner(small, tmp_path / name, jobs)


def test_trials_are_the_same_with_however_many_processes(make: Callable[..., Tuner]) -> None:
    alone, spread = make("alone"), make("spread", 2)
    assert (alone.do("updown", "m2"), spread.do("updown", "m2")) == ({}, {})
    for model in ("updown", "m2"):
        assert spread.study(model) == alone.study(model)
    states = [trial.state for trial in alone.study("updown").trials]
    assert "pruned" in states[:6], "else nothing is compared"
    assert states[6:] == ["finished"] * 2, "no further seed is pruned"
    assert not list(spread.search.workspace.root.rglob("epoch"))


@pytest.mark.parametrize("epochs", [0, 2])
@pytest.mark.parametrize("killed", [True, False])
def test_a_lost_trial_goes_on_with_what_it_reported(
    make: Callable[..., Tuner], monkeypatch: pytest.MonkeyPatch, epochs: int, killed: bool
) -> None:
    """The second trial of a model is lost, with its process or by an error; the next command does it again."""
    alone, lost = make("alone"), make("lost", 2)
    alone.do("updown", "m2")

    def dying(order: TrialOrder, context: object, reports: Any, services: object) -> float:
        report = reports.report

        def count(cider: float, step: int, *, last: bool) -> None:
            report(cider, step, last=last)
            if order.model.name == "updown" and order.place == 2 and step == 10 * (epochs + 1):
                if killed:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise OSError("lost")

        reports.report = count
        return train(order, context, reports, services)

    with monkeypatch.context() as dies:
        dies.setattr("harness.benchmark.tune.tune.train_trial", dying)
        errors = lost.do("updown", "m2")
    assert list(errors) == ["updown"]
    assert errors["updown"].startswith("WorkerDied" if killed else "OSError: lost")
    assert lost.study("m2") == alone.study("m2"), "another model goes on"
    assert lost.do("updown", "m2") == {}
    assert lost.study("updown") == alone.study("updown")


def test_what_ends_trials_badly_is_told_apart(make: Callable[..., Tuner], monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(order: TrialOrder, *more: Any) -> float:
        if order.model.name == "updown":
            raise BenchError("shapes do not fit", "mend it")
        if order.trial.values != TunedValues():
            raise TrainingDivergedError("loss nan")
        return train(order, *more)

    monkeypatch.setattr("harness.benchmark.tune.tune.train_trial", failing)
    tuner = make("one")
    assert tuner.do("updown", "m2") == {"updown": "BenchError: shapes do not fit (mend it)"}
    study = tuner.study("m2")
    found = study.chosen()
    assert (found.count("finished"), found.count("failed"), study.done, found.best) == (1, 5, True, found.default)
    assert [trial.state for trial in tuner.study("updown").trials] == [None], "it is done again"


def test_a_node_without_the_workspace_is_named(make: Callable[..., Tuner]) -> None:
    search = make("there").search
    order = TrialOrder(requested("updown")[0], DEFAULT, 1, search.workspace.root / "nowhere")
    with pytest.raises(BenchError, match="nowhere"):
        TrialWork(search)(order)


def test_trials_below_the_median_are_stopped(tmp_path: Path) -> None:
    others = [{10: value} for value in (0.5, 0.6, 0.7)]

    def reports() -> Reports:
        (tmp_path / "reported.json").unlink(missing_ok=True)
        return Reports(TrialOrder(requested("updown")[0], DEFAULT, 4, tmp_path, others), BUDGET)

    reports().report(0.1, 9, last=False)  # the first third is too early
    with pytest.raises(TrialPruned):
        reports().report(0.59, 10, last=False)
    reports().report(0.6, 10, last=False)
    reports().report(0.1, 30, last=True)  # nothing is left to save


def test_a_model_that_another_command_tunes_is_waited_for(make: Callable[..., Tuner]) -> None:
    tuner = make("one")
    file = tuner.search.file(requested("updown")[0], tuner.context)
    file.parent.mkdir(parents=True)
    with ThreadPoolExecutor(1) as pool:
        with locked(file.with_suffix(".lock"), lambda: None):
            working = pool.submit(tuner.do, "updown", "m2")
            while not tuner.study("m2").done:
                time.sleep(0.05)
            assert tuner.study("updown").trials == ()
        assert working.result(timeout=60) == {}
    assert tuner.study("updown").done


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--on", "slurm"), "--on slurm"),
        (("--on", "mars"), "--on 'mars'"),
        (("--cpus-per-run", 2), "--cpus-per-run"),
        (("--on", "ray", "--device", "cpu"), "Ray"),
    ],
)
def test_engines_that_cannot_tune_are_refused(
    words: tuple[object, ...], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.benchmark.engines.ray.find_spec", lambda _: None)
    error = bench("tune", "--models", "updown", "--workspace", tmp_path / "new", *words).exception
    assert isinstance(error, BenchError)
    assert named in str(error)
    assert not (tmp_path / "new").exists()


def test_optuna_is_quiet(make: Callable[..., Tuner], capfd: pytest.CaptureFixture[str]) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.INFO)
    make("quiet").do("m2")
    assert capfd.readouterr().err == ""
