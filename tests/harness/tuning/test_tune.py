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

from harness.config.tuning import Budget, SearchSpace, Tuned, TunedValues
from harness.runner.context import RunContext
from harness.runner.identity.signature import tuned_field
from harness.runner.models import RequestedModel, resolve_models
from harness.runner.plan import plan_runs
from harness.tuning.chosen import TunedFile, TunedModel, from_file, from_workspace
from harness.tuning.storage import open_studies
from harness.tuning.study import standing
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from results import Store
from results.queries.fetch import leaderboard
from tests.harness.conftest import TINY, DrawScenes, bench_or_raise, bench_process, set_options
from tests.harness.runner.kills import PLUGINS, killed_at

SETTINGS = TINY | {"size.n_heads": 2, "schedule.stages.0.epochs": 2}
FEATURES = ("--backbone", "filterbank", "--backbone-option", "grid=2", "--device", "cpu")
BUDGET = Budget(trials=3, updates=2, startup_trials=2)


def words(command: str, data: Path, workspace: Path, models: str) -> list[object]:
    options = ("--preset", "smoke", "--data", data, "--workspace", workspace, "--models", models)
    return [command, *options, *FEATURES, *set_options(SETTINGS)]


def requested(*names: str) -> list[RequestedModel]:
    return resolve_models(names, Workspace(Path("nowhere")))


def trials_of(workspace: Path, model: str) -> list[tuple[TrialState, dict[str, Any], float | None]]:
    """The trials of a model's study but those that were repeated."""
    storage = open_studies(Workspace(workspace))
    [name] = [name for name in optuna.get_all_study_names(storage) if name.startswith(f"{model}-s")]
    trials = optuna.load_study(study_name=name, storage=storage).trials
    repeated = {trial.user_attrs.get("repeats") for trial in trials}
    return [(trial.state, trial.params, trial.value) for trial in trials if trial.number not in repeated]


def test_a_killed_tuning_goes_on_and_its_values_are_run(draw_scenes: DrawScenes, tmp_path: Path) -> None:
    data, models = draw_scenes(train=24, val=4, test=6), "transformer_base,broken_raises,broken_nan"
    killed = [*words("tune", data, tmp_path / "a", models), "--trials", 3]
    broken = ("--plugin", PLUGINS / "broken_models.py")
    plugin, environment = killed_at("training")  # in the third of the first trial's four steps
    assert bench_process(*killed, *broken, *plugin, **environment).returncode == -signal.SIGKILL
    assert [state for state, _, _ in trials_of(tmp_path / "a", "transformer_base")] == [TrialState.RUNNING]

    code, said = bench_or_raise(*killed, *broken, "--export", tmp_path / "tuned.yaml")
    assert code == 1, "models that fail say so, and stop no other"
    assert "broken_raises: failed: RuntimeError: shapes do not fit" in said
    assert [said.count(f"{name} trial") for name in ("broken_nan", "transformer_base")] == [3, 3]
    assert bench_or_raise(*words("tune", data, tmp_path / "b", "transformer_base"), "--trials", 3)[0] == 0
    assert trials_of(tmp_path / "a", "transformer_base") == trials_of(tmp_path / "b", "transformer_base")

    run = [*words("run", data, tmp_path / "a", "transformer_base"), "--jobs", 1]
    assert [bench_or_raise(*run, *option)[0] for option in ((), ("--tuned",))] == [0, 0]
    with Store(tmp_path / "a" / "bench.sqlite", read_only=True) as store:
        plain, tuned = leaderboard(store)
    file = TunedFile.model_validate(yaml.safe_load((tmp_path / "tuned.yaml").read_text(encoding="utf-8")))
    assert dict(tuned.signature.items() ^ plain.signature.items()) == {"tuned": file.tuned}
    assert file.models.keys() == {"transformer_base"}
    found = file.models["transformer_base"]
    assert found.default is not None
    assert found.best >= found.default


def test_only_the_field_of_tuned_runs_is_signed(small: RunContext) -> None:
    models = requested("updown", "transformer_base")
    values = {"updown": TunedValues(learning_rate=4.0, clip_norm=5.0), "transformer_base": TunedValues()}
    tuned = replace(small, tuned=Tuned("3x2#abcdef", values))
    plain, chosen = (plan_runs(models, 2, context, Workspace(Path())) for context in (small, tuned))
    for before, after in zip(plain, chosen, strict=True):
        assert after.signature == before.signature | {"tuned": "3x2#abcdef"}
        assert after.key != before.key
    rates = {spec.model: spec.config["preset"]["schedule"]["stages"][0]["learning_rate"]["peak"] for spec in chosen}
    assert rates == {"updown": 0.016, "transformer_base": 0.004}
    assert {spec.model: spec.config["tuned"] for spec in chosen} == {
        "updown": {"learning_rate": 4.0, "clip_norm": 5.0},
        "transformer_base": {},
    }


def test_reference_rows_are_the_same_tuned_or_not(small: RunContext) -> None:
    models = requested("majority")
    tuned = replace(small, tuned=Tuned("3x2#abcdef", {}))
    assert plan_runs(models, 1, tuned, Workspace(Path())) == plan_runs(models, 1, small, Workspace(Path()))


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
    monkeypatch.setattr("harness.tuning.storage.find_spec", lambda _: None)
    with pytest.raises(BenchError, match="needs Optuna") as caught:
        bench_or_raise("tune", "--workspace", tmp_path)
    assert caught.value.hint == "pip install 'captionbench[tune]'"


def test_a_model_without_a_finished_study_is_named(small: RunContext, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"no finished tuning .* for updown, m2") as caught:
        from_workspace(Workspace(tmp_path))(small, requested("updown", "m2"))
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("type: bench tune --models updown,m2 --preset smoke --workspace ")


def test_a_file_of_other_conditions_is_refused(small: RunContext, tmp_path: Path) -> None:
    model = TunedModel(values=TunedValues(dropout_scale=0.2), best=0.5, finished=3, pruned=0, failed=0)
    content = TunedFile(
        command="bench tune", preset="smoke", data=small.signature["data"], features=small.signature["feat"],
        tuned=tuned_field(SearchSpace(), BUDGET, small.preset), budget=BUDGET, space=SearchSpace(),
        models={"updown": model},
    )  # fmt: skip
    file = tmp_path / "tuned.yaml"

    def find(changes: dict[str, Any], *names: str) -> Tuned:
        file.write_text(yaml.safe_dump(content.model_copy(update=changes).model_dump(mode="json")), encoding="utf-8")
        return from_file(str(file))(small, requested(*names))

    assert find({}, "updown") == Tuned(content.tuned, {"updown": TunedValues(dropout_scale=0.2)})
    with pytest.raises(BenchError, match="no values for m2"):
        find({}, "updown", "m2")
    with pytest.raises(BenchError, match="tuned under other conditions: data coco#1, here scenes#"):
        find({"data": "coco#1"}, "updown")
    with pytest.raises(BenchError, match="other conditions: preset "):
        find({"budget": BUDGET.model_copy(update={"trials": 4})}, "updown")
    file.write_text("models: [", encoding="utf-8")
    with pytest.raises(BenchError, match="holds no tuned values"):
        from_file(str(file))
    with pytest.raises(BenchError, match="cannot be read: No such file"):
        from_file(str(tmp_path / "none.yaml"))


def test_an_empty_study_has_no_best_trial() -> None:
    found = standing(optuna.create_study(direction="maximize"), BUDGET)
    assert (found.default, found.best, found.done) == (None, None, False)
