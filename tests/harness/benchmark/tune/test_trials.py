"""Trials by an engine: the same studies whichever makes them, also where a trial or its command is lost."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from io import StringIO
from pathlib import Path

import pytest

from harness.benchmark.context import RunContext
from harness.benchmark.services import Services
from harness.benchmark.tune.study import open_journal, tuned_trials, tuning_folder
from harness.benchmark.tune.tune import ModelStudy, Search, do_trials, run_trial
from harness.config.tuning import Budget, SearchSpace, TunedTrial, TunedValues
from harness.executors.local import LocalExecutor
from harness.training.losses import TrainingDivergedError
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace, locked
from tests.harness.benchmark.small_runs import FixedServices, conditions_of, requested
from tests.harness.conftest import bench

optuna = pytest.importorskip("optuna")
BUDGET = Budget(trials=6, updates=30, startup_trials=2)


def train(trial: optuna.Trial, study: ModelStudy, values: TunedValues, _search: Search, _services: Services) -> float:
    """Three validations, pruned as the study says."""
    study.folder.mkdir(exist_ok=True)
    best = 1 - abs((values.learning_rate or 1.0) - 1.5) / 10 - len(study.model.name) / 100
    for epoch in range(3):
        trial.report(best * (epoch + 1) / 3, 10 * (epoch + 1))
        if epoch < 2 and trial.should_prune():
            raise optuna.TrialPruned
    return best


@pytest.fixture(autouse=True)
def _training(forked_workers: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001
    monkeypatch.setattr("harness.benchmark.tune.tune.train_trial", train)


class Tuner:
    """A search in a workspace of its own, of two models side by side or one after another."""

    def __init__(self, context: RunContext, folder: Path, jobs: int) -> None:
        workspace, conditions = Workspace(folder), conditions_of(context)
        tuning_folder(workspace).mkdir(parents=True, exist_ok=True)
        self.printed, self.context = StringIO(), context
        self.search = Search(workspace, conditions, SearchSpace(), BUDGET, "6x30#abcdef")
        self.services = FixedServices(workspace, context, self.printed)
        self.executor, self.jobs = LocalExecutor(jobs), jobs
        self.executor.slots(2, context.compute.device, 1, lambda: 0)

    def do(self, *models: str) -> dict[str, str]:
        with self.services, closing(self.executor):
            return do_trials(requested(*models), self.search, self.executor, self.jobs, self.services)

    def trials(self, model: str) -> list[TunedTrial]:
        """The trials that count."""
        return tuned_trials(self.study(model))

    def study(self, model: str) -> optuna.Study:
        return self.model_study(model).open(open_journal(self.search.workspace))

    def model_study(self, model: str) -> ModelStudy:
        [row] = requested(model)
        return self.search.model_study(row, self.context)


@pytest.fixture
def make(small: RunContext, tmp_path: Path) -> Callable[..., Tuner]:
    return lambda name, jobs=1: Tuner(small, tmp_path / name, jobs)


def test_trials_are_the_same_with_however_many_processes(make: Callable[..., Tuner]) -> None:
    alone, spread = make("alone"), make("spread", 2)
    assert (alone.do("updown", "m2"), spread.do("updown", "m2")) == ({}, {})
    for model in ("updown", "m2"):
        assert len(alone.trials(model)) == 6
        assert spread.trials(model) == alone.trials(model)
    assert "pruned" in [trial.state for trial in alone.trials("updown")], "else nothing is compared"
    assert [path for path in tuning_folder(spread.search.workspace).iterdir() if path.is_dir()] == []
    assert spread.do("updown", "m2") == {}, "again, nothing is left"
    assert len(spread.study("updown").trials) == 6


@pytest.mark.parametrize("epochs", [0, 2])
@pytest.mark.parametrize("killed", [True, False])
def test_a_lost_trial_is_done_again(
    make: Callable[..., Tuner], monkeypatch: pytest.MonkeyPatch, epochs: int, killed: bool
) -> None:
    """The second trial of a model is lost, with its process or by an error; the next command does it again."""
    alone, lost = make("alone"), make("lost", 2)
    alone.do("updown", "m2")

    def dying(trial: optuna.Trial, study: ModelStudy, values: TunedValues, search: Search, services: Services) -> float:
        if study.model.name == "updown" and trial.number == 1:
            for epoch in range(epochs):
                trial.report(0.9, 10 * (epoch + 1))
            if killed:
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError("lost")
        return train(trial, study, values, search, services)

    with monkeypatch.context() as dies:
        dies.setattr("harness.benchmark.tune.tune.train_trial", dying)
        errors = lost.do("updown", "m2")
    assert list(errors) == ["updown"]
    assert errors["updown"].startswith("WorkerDied" if killed else "OSError: lost")
    assert lost.trials("m2") == alone.trials("m2"), "another model goes on"
    assert lost.do("updown", "m2") == {}
    assert lost.trials("updown") == alone.trials("updown")
    first, again = [trial for trial in lost.study("updown").trials if trial.number in {1, 2}]
    assert (first.state.name, again.params) == ("FAIL", first.params)


def test_what_ends_trials_badly_is_told_apart(make: Callable[..., Tuner], monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(
        trial: optuna.Trial, study: ModelStudy, values: TunedValues, search: Search, services: Services
    ) -> float:
        if study.model.name == "updown":
            raise BenchError("shapes do not fit", "mend it")
        if values != TunedValues():
            raise TrainingDivergedError("loss nan")
        return train(trial, study, values, search, services)

    monkeypatch.setattr("harness.benchmark.tune.tune.train_trial", failing)
    tuner = make("one")
    assert tuner.do("updown", "m2") == {"updown": "BenchError: shapes do not fit (mend it)"}
    assert [trial.state for trial in tuner.trials("m2")] == ["finished"] + ["failed"] * 5
    assert tuner.trials("updown") == [], "it is done again"
    assert [trial.state.name for trial in tuner.study("updown").trials] == ["FAIL"], "and recorded"


def test_a_node_without_the_workspace_is_named(make: Callable[..., Tuner]) -> None:
    tuner = make("there")
    with pytest.raises(BenchError, match="a node of the cluster does not see "):
        run_trial(tuner.model_study("updown"), tuner.search)


def test_a_model_that_another_command_tunes_is_done_last(make: Callable[..., Tuner]) -> None:
    tuner = make("one")
    lock = tuner.model_study("updown").lock
    with ThreadPoolExecutor(1) as pool:
        with locked(lock, lambda: None):
            working = pool.submit(tuner.do, "updown", "m2")
            end = time.monotonic() + 60
            while len(tuner.trials("m2")) < 6 and time.monotonic() < end:
                time.sleep(0.05)
            assert tuner.trials("updown") == []
        assert working.result(timeout=60) == {}
    assert len(tuner.trials("updown")) == 6


def test_two_commands_share_a_study(make: Callable[..., Tuner], small: RunContext) -> None:
    """Trials of one model are done one after another, by whichever command has its lock."""
    alone, one = make("alone"), make("one")
    other = Tuner(small, one.search.workspace.root, 1)
    alone.do("updown")
    one.do("m2")  # makes the journal
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(tuner.do, "updown") for tuner in (one, other)]
        assert [future.result(timeout=60) for future in both] == [{}, {}]
    assert one.trials("updown") == alone.trials("updown")
    assert len(one.study("updown").trials) == 6


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--executor", "slurm"), "--executor slurm"),
        (("--executor", "mars"), "--executor 'mars'"),
        (("--cpus-per-run", 2), "--cpus-per-run"),
        (("--executor", "ray", "--device", "cpu"), "Ray"),
    ],
)
def test_engines_that_cannot_tune_are_refused(
    words: tuple[object, ...], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.executors.ray.find_spec", lambda _: None)
    error = bench("tune", "--models", "updown", "--workspace", tmp_path / "new", *words).exception
    assert isinstance(error, BenchError)
    assert named in str(error)
    assert not (tmp_path / "new").exists()


def test_optuna_is_quiet(make: Callable[..., Tuner], capfd: pytest.CaptureFixture[str]) -> None:
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.INFO)
    make("quiet").do("m2")
    assert capfd.readouterr().err == ""
