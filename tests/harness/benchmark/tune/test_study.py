"""Studies: which trials there are, in which order, and what is chosen of them."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from harness.benchmark.tune.study import Study, TunedModel, read_study, save_study
from harness.config.tuning import TRIAL_SEED, Budget, SearchSpace, TunedValues
from results.errors import StoreError

BUDGET = Budget(trials=6, updates=30, startup_trials=3)
FINALS = BUDGET.model_copy(update={"finalists": 2, "seeds": 2})
START = {"learning_rate": 1.0, "dropout_scale": 1.0, "warmup": 0.1, "clip_norm": 1.0}


def fresh(budget: Budget = BUDGET) -> Study:
    return Study(label="6x30#abcdef", budget=budget, space=SearchSpace())


def score(values: TunedValues, _: int = TRIAL_SEED) -> float | None:
    """Best at a learning rate a little above the preset's."""
    return 1 - abs((values.learning_rate or 1.0) - 1.5) / 10


def work(study: Study, trials: int = 100, judge: Callable[[TunedValues, int], float | None] = score) -> Study:
    """Do at most so many trials, of which those without a score fail."""
    for _ in range(trials):
        begun = study.begin(START)
        if begun is None:
            break
        trial = begun.trials[-1]
        found = judge(trial.values, trial.seed)
        how = {"state": "failed" if found is None else "finished", "score": found}
        study = begun.end(trial.model_copy(update=how))
    return study


def test_the_first_trial_is_the_untuned_preset() -> None:
    study = work(fresh())
    values = [trial.values for trial in study.trials]
    assert (study.done, len(values), values[0]) == (True, 6, TunedValues())
    assert len({each.learning_rate for each in values}) == 6
    assert all(0.3 <= each.learning_rate <= 3 for each in values[1:] if each.learning_rate)
    assert [each.dropout_scale is None for each in values] == [True, False] * 3, "every other has the preset's"
    assert all(each.clip_norm is not None for each in values[1:])


def test_all_models_explore_the_same_points() -> None:
    drawn, bad = ([trial.values for trial in work(fresh(), judge=each).trials] for each in (score, lambda *_: 0.0))
    assert drawn[:3] == bad[:3]
    assert work(fresh(BUDGET.model_copy(update={"seed": 1})), 2).trials[1].values != drawn[1]


def test_interrupted_trials_go_on_with_the_same_values(tmp_path: Path) -> None:
    """Each trial's process is ended, and the next one has only what is on disk."""
    undisturbed, file, study = work(fresh(FINALS)), tmp_path / "study.json", fresh(FINALS)
    assert len(undisturbed.trials) == 12
    for _ in range(12):
        begun = study.begin(START)
        assert begun is not None
        save_study(file, begun)
        again = read_study(file).begin(START)
        assert again == begun
        study = work(again, 1)
    assert study == undisturbed
    assert [trial.seed - TRIAL_SEED for trial in study.trials] == [0] * 6 + [1] * 3 + [2] * 3
    assert study.begin(START) is None


def test_a_damaged_study_is_named(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text("{}")
    with pytest.raises(StoreError, match="is not a study of bench tune: ") as caught:
        read_study(tmp_path / "study.json")
    assert caught.value.hint


def test_what_is_chosen_counts_every_trial_once() -> None:
    begun = fresh().begin(START)
    assert begun is not None
    assert not begun.done
    study = work(work(begun, 4), judge=lambda *_: None)
    found = study.chosen()
    assert (found.count("finished"), found.count("pruned"), found.count("failed"), study.done) == (4, 0, 2, True)
    assert found.default == score(TunedValues())
    assert found.default is not None
    assert found.best is not None
    assert found.best == score(found.values) >= found.default


def test_of_equal_scores_the_default_is_chosen() -> None:
    assert work(fresh(), judge=lambda *_: 0.25).chosen().values == TunedValues()


def chosen(*scores: Sequence[float | None]) -> tuple[TunedModel, list[TunedValues]]:
    """Of a study whose first trials have the first of these scores, and further seeds the others; its values too."""
    places: dict[TunedValues, int] = {}
    study = work(
        fresh(FINALS), judge=lambda values, seed: scores[places.setdefault(values, len(places))][seed - TRIAL_SEED]
    )
    assert study.done
    return study.chosen(), list(places)


def test_finalists_and_the_preset_are_trained_again() -> None:
    rest = [[0.2]] * 3
    found, values = chosen([0.50, 0.52, 0.51], [0.59, 0.60, 0.61], [0.62, 0.58, 0.58], *rest)
    assert found.values == values[1]
    assert (found.default, found.best) == (pytest.approx(0.51), pytest.approx(0.60))
    assert found.deviation == pytest.approx(((1e-4 + 1e-4 + 16e-4 / 3) / 3) ** 0.5)
    again = [(trial.seed - TRIAL_SEED, trial.score) for trial in found.trials[6:]]
    assert again == [(1, 0.52), (1, 0.58), (1, 0.60), (2, 0.51), (2, 0.58), (2, 0.61)]


@pytest.mark.parametrize(("gain", "kept"), [(0.9, True), (1.1, False)])
def test_the_preset_is_kept_within_noise(gain: float, kept: bool) -> None:
    """Three finals of three seeds of deviation 1: t of six degrees is 1.943, and the error sqrt(2/3)."""
    above = gain * 1.943 * (2 / 3) ** 0.5
    seeds = [[each + more for each in (5.0, 4.0, 6.0)] for more in (0, above, above - 0.1)]
    found, values = chosen(*seeds, *[[0.0]] * 3)
    assert found.deviation == pytest.approx(1)
    assert found.values == (TunedValues() if kept else values[1])
    assert found.best == pytest.approx(5 if kept else 5 + above)


def test_what_failed_with_any_seed_is_not_chosen() -> None:
    rest = [[0.1]] * 3
    found, values = chosen([0.5, 0.5, 0.5], [0.9, None, 0.9], [0.8, 0.8, 0.8], *rest)
    assert found.values == values[2]
    for preset in ([None], [0.9, 0.9, None]):
        found, values = chosen(preset, [0.6, 0.6, 0.6], [0.7, 0.7, 0.7], *rest)
        assert (found.default, found.values, found.best) == (None, values[2], pytest.approx(0.7))


def test_where_only_the_preset_finished_nothing_follows() -> None:
    found, _ = chosen([0.5], *[[None]] * 5)
    assert (len(found.trials), found.values, found.best, found.deviation) == (6, TunedValues(), 0.5, None)
