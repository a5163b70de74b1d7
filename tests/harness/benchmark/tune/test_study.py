"""Studies: which trials there are, who does them, and what becomes of those of ended processes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from harness.benchmark.tune.storage import open_studies, studies_lock
from harness.benchmark.tune.study import ClaimedTrial, ModelStudy, StudyStanding, counted, standing
from harness.benchmark.tune.trials import wait_for
from harness.config.tuning import TRIAL_SEED, Budget, SearchSpace, TunedValues
from harness.utils.workspace import Workspace, is_locked, locked

BUDGET = Budget(trials=6, updates=30, startup_trials=3)
FINALS = BUDGET.model_copy(update={"finalists": 2, "seeds": 2})
START = {"learning_rate": 1.0, "dropout_scale": 1.0, "warmup": 0.1, "clip_norm": 1.0}
OpenStudy = Callable[..., ModelStudy]


@pytest.fixture
def open_study(tmp_path: Path) -> OpenStudy:
    """Opens the study of a name, each time as another process does, but for the file that takes seconds to make."""
    memory = optuna.storages.InMemoryStorage()

    def open_one(name: str = "updown", budget: Budget = BUDGET, *, on_disk: bool = False) -> ModelStudy:
        place = Workspace(tmp_path)
        lock = studies_lock(place)
        with locked(lock, lambda: None):
            storage = open_studies(place) if on_disk else memory
            study = optuna.create_study(storage=storage, study_name=name, direction="maximize", load_if_exists=True)
        return ModelStudy(study, SearchSpace(), budget, START, tmp_path / name, lock)

    return open_one


def score(values: TunedValues) -> float:
    """Best at a learning rate a little above the preset's."""
    return 1 - abs((values.learning_rate or 1.0) - 1.5) / 10


def as_usual(claim: ClaimedTrial) -> float | None:
    return score(claim.values)


def work(
    study: ModelStudy, trials: int = 100, judge: Callable[[ClaimedTrial], float | None] = as_usual
) -> list[tuple[int, TunedValues]]:
    """Do at most so many trials, of which those without a score fail; their places and values."""
    done = []
    for _ in range(trials):
        with study.claim() as claim:
            if claim is None:
                break
            found = judge(claim)
            study.finish(claim, *((TrialState.FAIL, None, "nan") if found is None else (TrialState.COMPLETE, found)))
            done.append((claim.place, claim.values))
    return done


def interrupt(study: ModelStudy, reported: float | None = None) -> tuple[int, TunedValues]:
    """Take a trial and leave it, as a process that was killed."""
    with study.claim() as claim:
        assert claim is not None
        (claim.folder / "checkpoint").touch()
        if reported is not None:
            claim.trial.report(reported, 10)
        return claim.place, claim.values


def test_the_first_trial_is_the_untuned_preset(open_study: OpenStudy) -> None:
    done = work(open_study())
    assert [place for place, _ in done] == [1, 2, 3, 4, 5, 6]
    assert done[0][1] == TunedValues()
    assert len({values.learning_rate for _, values in done}) == 6
    assert all(0.3 <= values.learning_rate <= 3 for _, values in done[1:] if values.learning_rate)


def test_every_other_trial_has_the_preset_s_dropout(open_study: OpenStudy) -> None:
    """Also while the sampler learns, and where the process that drew it was ended."""
    study = open_study()
    found = []
    while not study.done():
        interrupt(study)
        found += work(study, 1)
    assert [values.dropout_scale is None for _, values in found] == [True, False] * 3
    assert all(values.clip_norm is not None for _, values in found[1:])


def test_all_models_explore_the_same_points(open_study: OpenStudy) -> None:
    good, bad = open_study("updown"), open_study("m2")
    drawn = [values for _, values in work(good)][:3]
    for expected in drawn:
        with bad.claim() as claim:
            assert claim is not None
            assert claim.values == expected
            bad.finish(claim, TrialState.COMPLETE, 0.0)
    seeds = [open_study(f"seed {seed}", BUDGET.model_copy(update={"seed": seed})) for seed in (0, 1)]
    other = [work(study, 2)[1][1] for study in seeds]
    assert [other[0] == drawn[1], other[1] == drawn[1]] == [True, False]


def test_workers_never_do_one_trial_twice(open_study: OpenStudy) -> None:
    studies = [open_study("updown", FINALS, on_disk=True) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        done = [trial for trials in pool.map(work, studies) for trial in trials]
    assert sorted(place for place, _ in done) == [*range(1, 13)]
    assert [trial.state for trial in open_study(on_disk=True).study.trials] == [TrialState.COMPLETE] * 12


def test_a_trial_of_a_live_process_is_left_to_it(open_study: OpenStudy) -> None:
    first, second = open_study(budget=BUDGET.model_copy(update={"trials": 1})), open_study()
    with first.claim() as held, open_study(budget=BUDGET.model_copy(update={"trials": 1})).claim() as other:
        assert held is not None
        assert other is None
        assert len(second.running()) == 1


def test_a_trial_that_ends_while_others_look_is_not_repeated(
    open_study: OpenStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = open_study(), open_study()
    with first.claim() as held:
        assert held is not None

        def ended(_: Path) -> bool:
            first.finish(held, TrialState.COMPLETE, 0.5)
            return False

        monkeypatch.setattr("harness.benchmark.tune.study.is_locked", ended)
        with second.claim() as other:
            assert other is not None
            assert other.place == 2
    assert [trial.state for trial in first.study.trials] == [TrialState.COMPLETE, TrialState.RUNNING]


def test_waiting_for_the_last_trial_ends_with_it_and_its_folder(open_study: OpenStudy) -> None:
    """Its lock is gone with the folder, while it is waited for or already before."""
    first, second = open_study(), open_study()
    with ThreadPoolExecutor(1) as pool:
        with first.claim() as held:
            assert held is not None
            waiting = pool.submit(wait_for, second)
            time.sleep(0.1)
            assert not waiting.done()
            first.finish(held, TrialState.COMPLETE, 0.5)
        waiting.result(timeout=30)
    with first.claim() as held:
        assert held is not None
        shutil.rmtree(held.folder)
        wait_for(second)
        assert not is_locked(held.folder / "lock")


def test_interrupted_trials_go_on_with_the_same_values(open_study: OpenStudy) -> None:
    undisturbed = work(open_study("m2", FINALS))
    assert len(undisturbed) == 12
    found, seeds = [], []
    for place in range(1, 13):
        left = interrupt(open_study("updown", FINALS), 0.3)
        with (study := open_study("updown", FINALS)).claim() as claim:
            assert claim is not None
            assert (claim.place, claim.values) == left
            assert claim.place == place
            assert claim.known == {10}
            assert (claim.folder / "checkpoint").exists()
            study.finish(claim, TrialState.COMPLETE, score(claim.values))
        assert not claim.folder.exists()
        found.append(left)
        seeds.append(claim.seed - TRIAL_SEED)
    assert found == undisturbed
    assert seeds == [0] * 6 + [1] * 3 + [2] * 3
    assert work(open_study("updown", FINALS)) == []


def test_a_trial_killed_while_it_is_drawn_leaves_no_trace(open_study: OpenStudy) -> None:
    undisturbed = work(open_study("m2"))
    study = open_study()
    work(study, 2)
    study.study.ask()  # no values yet, and nobody holds its lock
    assert [values for _, values in work(open_study())] == [values for _, values in undisturbed[2:]]
    assert len(counted(study.study)) == BUDGET.trials


def test_a_standing_counts_every_trial_once(open_study: OpenStudy) -> None:
    study = open_study()
    interrupt(study)
    assert not standing(study.study, BUDGET).done
    work(study, 4)
    for _ in range(2):
        with study.claim() as claim:
            assert claim is not None
            study.finish(claim, TrialState.FAIL, reason="loss nan")
    found = standing(study.study, BUDGET)
    assert (found.finished, found.pruned, found.failed, found.done) == (4, 0, 2, True)
    assert found.default == score(TunedValues())
    assert found.best == score(found.values) >= found.default


def test_of_equal_scores_the_default_is_chosen(open_study: OpenStudy) -> None:
    study = open_study()
    for _ in range(BUDGET.trials):
        with study.claim() as claim:
            assert claim is not None
            study.finish(claim, TrialState.COMPLETE, 0.25)
    assert standing(study.study, BUDGET).values == TunedValues()


def chosen(open_study: OpenStudy, *scores: Sequence[float | None]) -> tuple[StudyStanding, list[TunedValues]]:
    """Of a study whose first trials have the first of these scores, and further seeds the others; its values too."""
    study = open_study(budget=FINALS)
    places: dict[TunedValues, int] = {}

    def judge(claim: ClaimedTrial) -> float | None:
        return scores[places.setdefault(claim.values, len(places))][claim.seed - TRIAL_SEED]

    work(study, judge=judge)
    return standing(study.study, FINALS), list(places)


def test_finalists_and_the_preset_are_trained_again(open_study: OpenStudy) -> None:
    rest = [[0.2]] * 3
    found, values = chosen(open_study, [0.50, 0.52, 0.51], [0.59, 0.60, 0.61], [0.62, 0.58, 0.58], *rest)
    assert (found.done, found.values) == (True, values[1])
    assert (found.default, found.best) == (pytest.approx(0.51), pytest.approx(0.60))
    assert found.deviation == pytest.approx(((1e-4 + 1e-4 + 16e-4 / 3) / 3) ** 0.5)
    again = [(trial.seed - TRIAL_SEED, trial.score) for trial in found.trials[6:]]
    assert again == [(1, 0.52), (1, 0.58), (1, 0.60), (2, 0.51), (2, 0.58), (2, 0.61)]


@pytest.mark.parametrize(("gain", "kept"), [(0.9, True), (1.1, False)])
def test_the_preset_is_kept_within_noise(open_study: OpenStudy, gain: float, kept: bool) -> None:
    """Three finals of three seeds of deviation 1: t of six degrees is 1.943, and the error sqrt(2/3)."""
    above = gain * 1.943 * (2 / 3) ** 0.5
    seeds = [[each + more for each in (5.0, 4.0, 6.0)] for more in (0, above, above - 0.1)]
    found, values = chosen(open_study, *seeds, *[[0.0]] * 3)
    assert found.deviation == pytest.approx(1)
    assert found.values == (TunedValues() if kept else values[1])
    assert found.best == pytest.approx(5 if kept else 5 + above)


def test_what_failed_with_any_seed_is_not_chosen(open_study: OpenStudy) -> None:
    rest = [[0.1]] * 3
    found, values = chosen(open_study, [0.5, 0.5, 0.5], [0.9, None, 0.9], [0.8, 0.8, 0.8], *rest)
    assert found.values == values[2]
    for preset in ([None], [0.9, 0.9, None]):
        found, values = chosen(
            lambda preset=preset, **more: open_study(str(preset), **more),
            preset, [0.6, 0.6, 0.6], [0.7, 0.7, 0.7], *rest,
        )  # fmt: skip
        assert (found.done, found.default, found.values, found.best) == (True, None, values[2], pytest.approx(0.7))


def test_where_only_the_preset_finished_nothing_follows(open_study: OpenStudy) -> None:
    found, _ = chosen(open_study, [0.5], *[[None]] * 5)
    assert (found.done, len(found.trials), found.values, found.best) == (True, 6, TunedValues(), 0.5)
    assert found.deviation is None
