"""Studies: which trials there are, in which order, and what is chosen of them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.benchmark.tune.study import (
    DIVERGED,
    TunedModel,
    begin_trial,
    draw_values,
    ended_trials,
    fail_lost_trials,
    journal_file,
    open_journal,
    tuned_trials,
)
from harness.config.tuning import Budget, SearchSpace, TunedTrial, TunedValues
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace

optuna = pytest.importorskip("optuna")
BUDGET = Budget(trials=6, updates=30, startup_trials=3)
START = {"learning_rate": 1.0, "dropout_scale": 1.0, "warmup": 0.1, "clip_norm": 1.0}
SPACE = SearchSpace()


class Killed(BaseException):
    """Stands for a kill: Optuna records no end of the trial."""


def open_study(folder: Path) -> optuna.Study:
    workspace = Workspace(folder)
    journal_file(workspace).parent.mkdir(exist_ok=True)
    return optuna.create_study(
        storage=open_journal(workspace), study_name="updown 6x30#abcdef", direction="maximize", load_if_exists=True
    )


def score(values: TunedValues) -> float:
    """Best at a learning rate a little above the preset's."""
    return 1 - abs((values.learning_rate or 1.0) - 1.5) / 10


def begin(folder: Path, budget: Budget = BUDGET) -> tuple[optuna.Study, int]:
    """A study whose next trial may be done, and the number of that."""
    study = open_study(folder)
    fail_lost_trials(study)
    number = len(ended_trials(study)) + 1
    begin_trial(study, number, budget, START)
    return study, number


def do_trials(
    folder: Path, count: int = 6, judge: Callable[[TunedValues], float] = score, budget: Budget = BUDGET
) -> list[TunedTrial]:
    """Do so many trials, each by a process of its own that has only what is on disk."""
    for _ in range(count):
        study, number = begin(folder, budget)

        def objective(trial: optuna.Trial, number: int = number) -> float:
            values = draw_values(trial, number, SPACE)
            try:
                return judge(values)
            except ArithmeticError as error:
                trial.set_user_attr(DIVERGED, str(error))
                raise

        study.optimize(objective, n_trials=1, catch=(ArithmeticError,))
    return tuned_trials(open_study(folder))


def diverge(_: TunedValues) -> float:
    raise ArithmeticError("loss nan")


def test_the_first_trial_is_the_untuned_preset(tmp_path: Path) -> None:
    trials = do_trials(tmp_path)
    values = [trial.values for trial in trials]
    assert values[0] == TunedValues()
    assert len({point.learning_rate for point in values}) == 6
    assert all(0.3 <= point.learning_rate <= 3 for point in values[1:] if point.learning_rate)
    assert [point.dropout_scale is None for point in values] == [True, False] * 3, "every other has the preset's"
    assert all(point.clip_norm is not None for point in values[1:])
    study = open_study(tmp_path)
    assert study.trials[0].params == START, "the sampler knows the preset by this point"


def test_all_models_explore_the_same_points(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("good", "bad", "seed")]
    for folder in folders:
        folder.mkdir()
    good = do_trials(folders[0])
    bad = do_trials(folders[1], judge=lambda _: 0.0)
    assert [trial.values for trial in good[:3]] == [trial.values for trial in bad[:3]]
    other_seed = do_trials(folders[2], 2, budget=BUDGET.model_copy(update={"seed": 1}))
    assert other_seed[1].values != good[1].values


def test_a_study_with_killed_trials_proposes_what_an_uninterrupted_one_does(tmp_path: Path) -> None:
    """Every trial is killed once: before it has parameters, with them, or after a failure of the machine."""
    folders = [tmp_path / name for name in ("whole", "killed")]
    for folder in folders:
        folder.mkdir()
    whole = do_trials(folders[0])

    def kill(_: TunedValues) -> float:
        raise Killed

    def lose(_: TunedValues) -> float:
        raise OSError("no space is left")

    for number in range(6):
        study, _ = begin(folders[1])
        study.ask()  # and its process ends
        with pytest.raises(Killed):
            do_trials(folders[1], 1, judge=kill)
        with pytest.raises(OSError, match="space"):
            do_trials(folders[1], 1, judge=lose)
        assert len(do_trials(folders[1], 1)) == number + 1, "lost trials do not count"
    assert tuned_trials(open_study(folders[1])) == whole
    states = [trial.state.name for trial in open_study(folders[1]).trials]
    assert states == ["FAIL", "FAIL", "FAIL", "COMPLETE"] * 6


def test_a_killed_trial_is_enqueued_again_with_its_parameters(tmp_path: Path) -> None:
    def kill(_: TunedValues) -> float:
        raise Killed

    do_trials(tmp_path, 2)
    with pytest.raises(Killed):
        do_trials(tmp_path, 1, judge=kill)
    killed = open_study(tmp_path).trials[-1]
    assert killed.state.name == "RUNNING"
    study, number = begin(tmp_path)
    assert number == 3
    failed, waiting = study.trials[-2:]
    assert (failed.state.name, waiting.state.name) == ("FAIL", "WAITING")
    assert waiting.system_attrs["fixed_params"] == killed.params


def test_diverged_trials_count(tmp_path: Path) -> None:
    do_trials(tmp_path, 2)
    trials = do_trials(tmp_path, 2, judge=diverge)
    assert [trial.state for trial in trials] == ["finished", "finished", "failed", "failed"]
    assert [trial.score is None for trial in trials] == [False, False, True, True]
    assert begin(tmp_path)[1] == 5
    assert ended_trials(open_study(tmp_path))[2].user_attrs[DIVERGED] == "loss nan"


def test_a_trial_that_was_killed_after_it_diverged_counts(tmp_path: Path) -> None:
    study, _ = begin(tmp_path)
    trial = study.ask()
    draw_values(trial, 1, SPACE)
    trial.set_user_attr(DIVERGED, "loss nan")
    assert tuned_trials(open_study(tmp_path)) == []
    study, number = begin(tmp_path)
    assert number == 2
    assert [trial.state for trial in tuned_trials(study)] == ["failed"]
    assert len(study.trials) == 1


def test_trials_below_the_median_are_stopped(tmp_path: Path) -> None:
    """Of three finished trials, after a third of the updates; by Optuna's own pruner."""
    values = iter([0.5, 0.6, 0.7, 0.59, 0.6])

    def objective(trial: optuna.Trial) -> float:
        value = next(values)
        trial.report(0.1, 9)
        early = trial.should_prune()
        trial.report(value, 10)
        if early or trial.should_prune():
            raise optuna.TrialPruned
        return value

    for _ in range(5):
        study, _ = begin(tmp_path)
        study.optimize(objective, n_trials=1)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 3 + ["PRUNED", "COMPLETE"]


@pytest.mark.parametrize("content", ["{}\n{}\n", "[1]\n", "no JSON\n\n", '{"op_code": 77}\n'])
def test_a_damaged_journal_is_named(tmp_path: Path, content: str) -> None:
    file = journal_file(Workspace(tmp_path))
    file.parent.mkdir()
    file.write_text(content)
    with pytest.raises(BenchError) as caught:
        open_journal(Workspace(tmp_path))
    assert str(file) in str(caught.value)
    assert caught.value.hint


def trial(rate: float | None, score: float | None, state: str = "finished") -> TunedTrial:
    return TunedTrial.model_validate({"learning_rate": rate, "score": score, "state": state})


def test_the_best_finished_trial_is_chosen() -> None:
    trials = [trial(None, 0.5), trial(2.0, 0.9, "pruned"), trial(1.5, 0.6), trial(0.7, None, "failed"), trial(0.8, 0.6)]
    tuned = TunedModel.of_trials(trials)
    assert (tuned.values, tuned.default, tuned.best) == (TunedValues(learning_rate=1.5), 0.5, 0.6)
    assert tuned.used_trial() == trials[2]
    assert tuned.trials == tuple(trials)


def test_of_equal_scores_the_preset_is_chosen() -> None:
    assert TunedModel.of_trials([trial(None, 0.25), trial(2.0, 0.25)]).values == TunedValues()


def test_where_nothing_finished_nothing_is_chosen() -> None:
    for trials in ([], [trial(None, None, "failed")]):
        tuned = TunedModel.of_trials(trials)
        assert (tuned.best, tuned.default, tuned.used_trial()) == (None, None, None)
