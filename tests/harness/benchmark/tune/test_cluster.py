"""Trials by a crew: the same studies as one process makes, also where a trial or its command is lost."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import optuna
import pytest
from harness.benchmark.engines.crew import Failure, Order, open_worker, take
from harness.benchmark.tune.cluster import OPENER, TrialOrder, do_trials_by_crew
from optuna.trial import TrialState

from harness.benchmark.context import RunContext
from harness.benchmark.tune.study import standing
from harness.benchmark.tune.trials import Search, do_trials, open_study
from harness.config.tuning import Budget, SearchSpace, TunedValues
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from tests.harness.benchmark.tune.conftest import SILENT, requested
from tests.harness.conftest import bench

T = TypeVar("T")
BUDGET = Budget(trials=6, updates=30, startup_trials=2)


@dataclass
class HereCrew:
    """A crew of this process; orders and answers are pickled, as between processes."""

    search: Search
    release_s: float = 0.0
    at_work: list[Order] = field(default_factory=list)

    def perform(self, orders: list[Order]) -> Generator[tuple[Order, Any], None, None]:
        with open_worker(OPENER, pickle.dumps(self.search), 0, SILENT) as work:
            while orders:
                order = take(orders)
                try:
                    ended = _sent(work(_sent(order.content)))
                except Exception as error:
                    ended = Failure(type(error).__name__, str(error))
                yield order, ended


def _sent(value: T) -> T:
    """A value as it arrives in another process."""
    arrived: T = pickle.loads(pickle.dumps(value))  # noqa: S301
    return arrived


def train(
    model: Any, values: TunedValues, _: Any, __: Any, folder: Path, report: Callable[[float, int, bool], None], ___: Any
) -> float:
    """Three validations; those before the last one that its folder knows are not made again."""
    mark = folder / "epoch"
    best = 1 - abs((values.learning_rate or 1.0) - 1.5) / 10 - len(model.name) / 100
    for epoch in range(int(mark.read_text()) if mark.exists() else 0, 3):
        report(best * (epoch + 1) / 3, 10 * (epoch + 1), epoch == 2)
        mark.write_text(str(epoch + 1))
    return best


@pytest.fixture(autouse=True)
def _training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.benchmark.tune.trials.train_trial", train)
    studies: dict[Path, optuna.storages.InMemoryStorage] = {}  # a file of them takes seconds to make

    def open_studies(workspace: Workspace) -> optuna.storages.InMemoryStorage:
        return studies.setdefault(workspace.root, optuna.storages.InMemoryStorage())

    monkeypatch.setattr("harness.benchmark.tune.trials.open_studies", open_studies)


@pytest.fixture
def make_search(small: RunContext, tmp_path: Path) -> Callable[[str], Search]:
    def make(name: str) -> Search:
        return Search(Workspace(tmp_path / name), small, SearchSpace(), BUDGET, "6x30#abcdef")

    return make


def trials_of(search: Search, model: str) -> list[tuple[object, ...]]:
    """All that values and pruning depend on, of the trials that count."""
    trials = open_study(*requested(model), search).study.trials
    repeated = {trial.user_attrs.get("repeats") for trial in trials}
    return [
        (trial.state, trial.params, trial.value, trial.intermediate_values)
        for trial in trials
        if trial.number not in repeated
    ]


def test_trials_of_a_crew_are_those_of_one_process(make_search: Callable[[str], Search]) -> None:
    models, alone, spread = requested("updown", "m2"), make_search("alone"), make_search("spread")
    assert do_trials(models, alone, SILENT) == {}
    assert do_trials_by_crew(lambda: HereCrew(spread), models, spread, SILENT) == {}
    for model in ("updown", "m2"):
        assert trials_of(spread, model) == trials_of(alone, model)
    assert TrialState.PRUNED in {trial[0] for trial in trials_of(spread, "updown")}, "else nothing is compared"
    assert not list(spread.workspace.root.rglob("epoch"))
    assert do_trials_by_crew(lambda: pytest.fail("nothing is left"), models, spread, SILENT) == {}


@pytest.mark.parametrize("epochs", [0, 1, 2])
def test_a_lost_trial_goes_on_with_what_it_reported(
    make_search: Callable[[str], Search], monkeypatch: pytest.MonkeyPatch, epochs: int
) -> None:
    """The second trial of a model is lost with its worker; the next command, with or without a crew, does it again."""
    models, alone, lost = requested("updown", "m2"), make_search("alone"), make_search("lost")
    do_trials(models, alone, SILENT)
    begun = 0

    def dying(model: Any, values: Any, a: Any, b: Any, folder: Path, report: Callable[..., None], c: Any) -> float:
        nonlocal begun
        begun += model.name == "updown"

        def count(cider: float, step: int, last: bool) -> None:
            report(cider, step, last)
            if model.name == "updown" and begun == 2 and step == 10 * (epochs + 1):
                raise OSError("lost")

        return train(model, values, a, b, folder, count, c)

    with monkeypatch.context() as dies:
        dies.setattr("harness.benchmark.tune.trials.train_trial", dying)
        errors = do_trials_by_crew(lambda: HereCrew(lost), models, lost, SILENT)
    assert errors == {"updown": "OSError: lost"}
    assert trials_of(lost, "m2") == trials_of(alone, "m2"), "another model goes on"
    if epochs % 2:
        assert do_trials(models, lost, SILENT) == {}
    else:
        assert do_trials_by_crew(lambda: HereCrew(lost), models, lost, SILENT) == {}
    assert trials_of(lost, "updown") == trials_of(alone, "updown")


def test_a_model_that_cannot_be_tuned_stops_no_other(
    make_search: Callable[[str], Search], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(model: Any, *arguments: Any) -> float:
        if model.name == "updown":
            raise BenchError("shapes do not fit", "mend it")
        return train(model, *arguments)

    monkeypatch.setattr("harness.benchmark.tune.trials.train_trial", failing)
    search = make_search("one")
    errors = do_trials_by_crew(lambda: HereCrew(search), requested("updown", "m2"), search, SILENT)
    assert errors == {"updown": "BenchError: shapes do not fit"}
    found = standing(open_study(*requested("m2"), search).study, BUDGET)
    assert found.done
    assert open_study(*requested("updown"), search).study.trials[0].state == TrialState.RUNNING


def test_a_node_without_the_workspace_is_named(make_search: Callable[[str], Search]) -> None:
    search = make_search("there")
    trial = TrialOrder(requested("updown")[0], TunedValues(), 1, search.workspace.root / "nowhere", {}, [])
    [(_, ended)] = HereCrew(search).perform([Order("updown", trial)])
    assert ended.error_class == "BenchError"
    assert "does not see" in ended.reason


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--on", "slurm"), "--on slurm is for bench run"),
        (("--on", "mars"), "--on 'mars' is unknown"),
        (("--cpus-per-run", 2), "--cpus-per-run is for runs on a cluster"),
        (("--on", "ray", "--device", "cpu"), "Ray, which is not installed"),
    ],
)
def test_engines_that_cannot_tune_are_refused(
    words: tuple[object, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.benchmark.engines.ray.find_spec", lambda _: None)
    error = bench("tune", "--models", "updown", "--workspace", tmp_path / "new", *words).exception
    assert isinstance(error, BenchError)
    assert said in str(error)
    assert error.hint
    assert not (tmp_path / "new").exists()


def test_optuna_is_quiet_about_trials_of_a_crew(
    make_search: Callable[[str], Search], capfd: pytest.CaptureFixture[str]
) -> None:
    optuna.logging.set_verbosity(optuna.logging.INFO)
    search = make_search("quiet")
    do_trials_by_crew(lambda: HereCrew(search), requested("m2"), search, SILENT)
    assert capfd.readouterr().err == ""
