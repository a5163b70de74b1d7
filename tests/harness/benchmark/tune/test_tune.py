"""`bench tune` and `bench run --tuned`, from a killed process to the leaderboard, and their errors."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import optuna
import pytest
import yaml
from optuna.trial import TrialState

from harness.benchmark.context import RunContext
from harness.benchmark.identity.signature import tuned_field
from harness.benchmark.plan import plan_runs
from harness.benchmark.tune.chosen import TunedFile
from harness.benchmark.tune.storage import open_studies
from harness.benchmark.tune.study import standing
from harness.config.execution import ExecutionConfig
from harness.config.tuning import SearchSpace, Tuned, TunedTrial, TunedValues
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from results import Store
from results.runs.leaderboard import leaderboard
from tests.harness.benchmark.kills import PLUGINS, killed_at
from tests.harness.benchmark.tune.conftest import BUDGET, requested
from tests.harness.conftest import TINY, DrawScenes, bench_or_raise, bench_process, own_registry, set_options

SETTINGS = TINY | {"size.n_heads": 2, "schedule.stages.0.epochs": 2}
FEATURES = ("--backbone", "filterbank", "--backbone-option", "grid=2", "--device", "cpu")


def words(command: str, data: Path, workspace: Path, models: str) -> list[object]:
    options = ("--preset", "smoke", "--data", data, "--workspace", workspace, "--models", models)
    return [command, *options, *FEATURES, *set_options(SETTINGS)]


def trials_of(workspace: Path, model: str) -> list[tuple[TrialState, dict[str, Any], float | None]]:
    """The trials of a model's study but those that were repeated."""
    storage = open_studies(Workspace(workspace))
    [name] = [name for name in optuna.get_all_study_names(storage) if name.startswith(f"{model}-s")]
    trials = optuna.load_study(study_name=name, storage=storage).trials
    repeated = {trial.user_attrs.get("repeats") for trial in trials}
    return [(trial.state, trial.params, trial.value) for trial in trials if trial.number not in repeated]


def test_a_killed_tuning_goes_on_and_its_values_are_run(
    draw_scenes: DrawScenes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, models = draw_scenes(train=24, val=4, test=6), "transformer_base,broken_raises"
    killed = [*words("tune", data, tmp_path / "a", models), "--trials", 3, "--plugin", PLUGINS / "broken_models.py"]
    plugin, environment = killed_at("training")  # in the third of the first trial's four steps
    assert bench_process(*killed, *plugin, **environment).returncode == -signal.SIGKILL
    assert [state for state, _, _ in trials_of(tmp_path / "a", "transformer_base")] == [TrialState.RUNNING]

    with own_registry():
        code, said = bench_or_raise(*killed, "--export", tmp_path / "tuned.yaml")
    assert code == 1, "models that fail say so, and stop no other"
    assert "broken_raises: failed: RuntimeError: shapes do not fit" in said
    assert said.count("transformer_base trial") == 3
    with monkeypatch.context() as beside:
        beside.setattr(ExecutionConfig, "jobs_for", lambda *_: 2)  # though it is one model
        assert bench_or_raise(*words("tune", data, tmp_path / "b", "transformer_base"), "--trials", 3)[0] == 0
    trials = trials_of(tmp_path / "a", "transformer_base")
    assert trials == trials_of(tmp_path / "b", "transformer_base"), "neither the kill nor --jobs is in the values"

    file = TunedFile.model_validate(yaml.safe_load((tmp_path / "tuned.yaml").read_text(encoding="utf-8")))
    assert file.models.keys() == {"transformer_base"}
    found = file.models["transformer_base"]
    assert found.default is not None
    assert found.best >= found.default
    assert [trial.score for trial in found.trials] == [score for _, _, score in trials]

    monkeypatch.setattr("harness.benchmark.tune.chosen.list_tuned", lambda: ["mine"])
    monkeypatch.setattr(
        "harness.benchmark.tune.chosen.shipped_tuned", lambda _: (tmp_path / "tuned.yaml").read_text("utf-8")
    )
    shipped = ("--set", "tuned=mine")
    code, said = bench_or_raise(*words("run", data, tmp_path / "a", "transformer_base,blind"), *shipped)
    assert "untuned: blind: 'mine' has no tuned values" in said
    assert bench_or_raise(*words("run", data, tmp_path / "a", "transformer_base"), *shipped, "--untuned")[0] == 0
    with Store(tmp_path / "a" / "bench.sqlite", read_only=True) as store:
        by_label = {group.signature.get("tuned"): group for group in leaderboard(store)}
    assert {label: {row.model for row in group.rows} for label, group in by_label.items()} == {
        file.tuned: {"transformer_base"},
        None: {"transformer_base", "blind"},
    }
    assert dict(by_label[file.tuned].signature.items() ^ by_label[None].signature.items()) == {"tuned": file.tuned}
    for same in (("--tuned",), ("--tuned-from", tmp_path / "tuned.yaml")):
        said = bench_or_raise(*words("run", data, tmp_path / "a", "transformer_base"), *same)[1]
        assert "0 finished, 1 re-used" in said, same


def test_only_the_field_of_tuned_runs_is_signed(small: RunContext) -> None:
    models = requested("updown", "transformer_base")
    values = {"updown": TunedValues(learning_rate=4.0, clip_norm=5.0), "transformer_base": TunedValues()}
    tuned = Tuned("3x2#abcdef", values)
    plain, chosen = (plan_runs(models, 2, small, Workspace(Path()), tuned=each) for each in (None, tuned))
    for before, after in zip(plain, chosen, strict=True):
        assert after.signature == before.signature | {"tuned": "3x2#abcdef"}
        assert after.key != before.key
    rates = {spec.model: spec.config["preset"]["schedule"]["stages"][0]["learning_rate"]["peak"] for spec in chosen}
    assert rates == {"updown": 0.016, "transformer_base": 0.004}
    assert {spec.model: spec.config["tuned"] for spec in chosen} == {
        "updown": {"learning_rate": 4.0, "clip_norm": 5.0},
        "transformer_base": {},
    }


def test_a_run_stores_the_trials_behind_its_values(small: RunContext) -> None:
    trials = (
        TunedTrial(state="finished", score=0.25),
        TunedTrial(learning_rate=0.5, clip_norm=0.0, state="pruned"),
    )
    tuned = Tuned("3x2#abcdef", {"updown": TunedValues()}, {"updown": trials})
    [plain], [spec] = (
        plan_runs(requested("updown"), 1, small, Workspace(Path()), tuned=each)
        for each in (replace(tuned, trials={}), tuned)
    )
    assert spec.config["tuning"]["trials"] == [
        {"learning_rate": 0.004, "state": "finished", "score": 0.25},
        {"learning_rate": 0.002, "state": "pruned", "score": None},
    ]
    assert (spec.key, spec.signature) == (plain.key, plain.signature)


def test_models_without_tuned_values_are_signed_as_untuned(small: RunContext) -> None:
    tuned, models = Tuned("3x2#abcdef", {"updown": TunedValues(learning_rate=4.0)}), requested("updown", "m2")
    [own, as_ever], [_, plain] = (plan_runs(models, 1, small, Workspace(Path()), tuned=each) for each in (tuned, None))
    assert own.signature["tuned"] == "3x2#abcdef"
    assert as_ever == plain


def test_reference_rows_are_the_same_tuned_or_not(small: RunContext) -> None:
    models, place = requested("majority"), Workspace(Path())
    tuned = Tuned("3x2#abcdef", {})
    assert plan_runs(models, 1, small, place, tuned=tuned) == plan_runs(models, 1, small, place)


def test_the_signature_tells_space_budget_and_preset(small: RunContext) -> None:
    fields = {
        tuned_field(SearchSpace(), BUDGET, small.preset),
        tuned_field(SearchSpace(width=(0.5, 1.0)), BUDGET, small.preset),
        tuned_field(SearchSpace(), BUDGET.model_copy(update={"seed": 1}), small.preset),
        tuned_field(SearchSpace(), BUDGET, small.preset.model_copy(update={"size": {"d_model": 8}})),
    }
    assert len(fields) == 4
    assert {field.partition("#")[0] for field in fields} == {"3x2"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--preset", "expansionnet-v2-paper"), "is a paper's recipe"),
        (("--models", "human,majority"), "names nothing that is trained: human, majority"),
        (("--precision", "fp8"), "--precision 'fp8' is unknown"),
    ],
)
def test_what_cannot_be_tuned_is_refused(options: Sequence[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=message):
        bench_or_raise("tune", "--models", "updown", "--workspace", tmp_path / "new", *options)
    assert not (tmp_path / "new").exists()


def test_without_optuna_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("harness.benchmark.tune.storage.find_spec", lambda _: None)
    with pytest.raises(BenchError, match="needs Optuna") as caught:
        bench_or_raise("tune", "--workspace", tmp_path)
    assert caught.value.hint == "uv sync --inexact --extra tune"


def test_one_choice_of_values_at_a_time(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="--tuned and --untuned contradict each other"):
        bench_or_raise("run", "--workspace", tmp_path, "--tuned", "--untuned")


def test_an_empty_study_has_no_best_trial() -> None:
    found = standing(optuna.create_study(direction="maximize"), BUDGET)
    assert (found.default, found.best, found.done) == (None, None, False)
