"""`bench tune` and `bench run --tuned`: which values are found, taken and signed, and what is refused."""

import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.benchmark.context import RunContext
from harness.benchmark.signature import tuned_field
from harness.benchmark.tune.study import (
    TunedFile,
    TunedModel,
    combine_tuned,
    from_file,
    from_workspace,
    open_journal,
    tuned_trials,
    tuning_folder,
)
from harness.config.execution import ExecutionConfig
from harness.config.load import load_preset
from harness.config.preset import Preset
from harness.config.run import config_of
from harness.config.tuning import AppliedTuning, Budget, SearchSpace, Tuned, TunedTrial, TunedValues, tuned_preset
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from results.records import RunSpec
from tests.harness.benchmark.kills import PLUGINS, killed_at
from tests.harness.benchmark.small_runs import planner, quiet, requested
from tests.harness.conftest import (
    TINY,
    DrawScenes,
    bench_forked,
    bench_or_raise,
    groups_in,
    own_registry,
    run_counts,
    set_options,
)

optuna = pytest.importorskip("optuna")
BUDGET = Budget(trials=3, updates=2, startup_trials=2)
SETTINGS = TINY | {"size.n_heads": 2, "schedule.stages.0.epochs": 2}
FEATURES = ("--backbone", "filterbank", "--backbone-option", "grid=2", "--device", "cpu")


def words(command: str, data: Path, workspace: Path, models: str) -> list[object]:
    options = ("--preset", "smoke", "--data", data, "--workspace", workspace, "--models", models)
    return [command, *options, *FEATURES, *set_options(SETTINGS)]


def tuned_values(spec: RunSpec) -> dict[str, Any]:
    tuned = config_of(spec).made_from.tuned
    assert tuned is not None
    return tuned.values.model_dump(exclude_none=True, exclude={"then"})


def study_of(workspace: Workspace, model: str) -> optuna.Study:
    """A model's study."""
    storage = open_journal(workspace)
    [name] = [name for name in optuna.get_all_study_names(storage) if name.startswith(f"{model}-s")]
    return optuna.load_study(study_name=name, storage=storage)


def test_a_killed_tuning_goes_on_and_its_values_are_run(
    draw_scenes: DrawScenes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, models = draw_scenes(train=24, val=4, test=6), "transformer_base,broken_raises"
    budget = ("--trials", 4)
    killed = [*words("tune", data, tmp_path / "a", models), *budget, "--plugin", PLUGINS / "broken_models.py"]
    plugin, environment = killed_at("training")  # in the third of the first trial's four steps
    assert bench_forked(*killed, *plugin, **environment).returncode == -signal.SIGKILL
    states = [trial.state.name for trial in study_of(Workspace(tmp_path / "a"), "transformer_base").trials]
    assert states == ["RUNNING"]

    with own_registry():
        code, printed = bench_or_raise(*killed, *plugin, "--export", tmp_path / "tuned.yaml")
    assert code == 1, "models that fail say so, and stop no other"
    assert "broken_raises: failed: RuntimeError: shapes do not fit" in printed
    assert printed.count("transformer_base trial") == 4
    with monkeypatch.context() as beside:
        beside.setattr(ExecutionConfig, "jobs_for", lambda *_: 2)  # though it is one model
        assert bench_or_raise(*words("tune", data, tmp_path / "b", "transformer_base"), *budget)[0] == 0
    study, uninterrupted = (study_of(Workspace(tmp_path / name), "transformer_base") for name in "ab")
    assert [trial.state.name for trial in study.trials][:2] == ["FAIL", "COMPLETE"]
    trials = tuned_trials(study)
    assert trials == tuned_trials(uninterrupted), "neither the kill nor --jobs is in the values"

    file = TunedFile.model_validate(yaml.safe_load((tmp_path / "tuned.yaml").read_text(encoding="utf-8")))
    assert file.models.keys() == {"transformer_base"}
    tuned = file.models["transformer_base"]
    assert tuned == TunedModel.of_trials(trials)
    assert len(trials) == 4
    assert tuned.default is not None
    assert tuned.best is not None
    assert tuned.best >= tuned.default
    lines = [line.split() for line in printed[printed.index("Model ") :].splitlines()]
    scores = [f"{100 * trial.score:.1f}" for trial in trials if trial.score is not None]
    table = [line for line in lines if line[:1] == ["transformer_base"] or line[:1] in (["2"], ["3"], ["4"])]
    assert [line[2 if line[0] == "transformer_base" else 1] for line in table] == scores

    of_file = ("--tuned", tmp_path / "tuned.yaml")
    assert bench_or_raise(*words("run", data, tmp_path / "b", "transformer_base,blind"))[0] == 0
    assert bench_or_raise(*words("run", data, tmp_path / "b", "transformer_base"), *of_file)[0] == 0
    by_label = {group.signature.get("tuned"): group for group in groups_in(tmp_path / "b")}
    assert {label: {row.model for row in group.rows} for label, group in by_label.items()} == {
        file.tuned: {"transformer_base"},
        None: {"transformer_base", "blind"},
    }
    assert dict(by_label[file.tuned].signature.items() ^ by_label[None].signature.items()) == {"tuned": file.tuned}
    for same in (("--tuned", "workspace"), of_file):
        said = bench_or_raise(*words("run", data, tmp_path / "b", "transformer_base"), *same)[1]
        assert run_counts(said).items() >= {"finished": 0, "re-used": 1}.items(), same


def test_a_stage_is_searched_after_those_before_it_and_its_values_are_run(
    draw_scenes: DrawScenes, tmp_path: Path
) -> None:
    data, place, models = draw_scenes(train=24, val=4, test=6), tmp_path / "killed", "transformer_base"
    settings = SETTINGS | {f"schedule.stages.1.self_critical.{name}": 2 for name in ("samples", "max_len")}
    more = ["--preset", "quick-scst", *set_options(settings | {"schedule.stages.1.epochs": 2})]
    tuning = [*words("tune", data, place, models), *more, "--stage", "scst", "--trials", 2]
    for moment in ("training", "captioning"):  # in the first stage, then in the searched one
        plugin, environment = killed_at(moment)
        assert bench_forked(*tuning, *plugin, **environment).returncode == -signal.SIGKILL
    with own_registry():
        assert bench_or_raise(*tuning, *plugin, "--export", tmp_path / "tuned.yaml")[0] == 0
    assert not [path for path in tuning_folder(Workspace(place)).iterdir() if path.is_dir()]

    content = TunedFile.model_validate(yaml.safe_load((tmp_path / "tuned.yaml").read_text(encoding="utf-8")))
    assert (content.space.stage, content.budget.updates) == ("scst", 2)
    assert bench_or_raise(*words("tune", data, tmp_path / "b", models), *more, "--trials", 1)[0] == 0
    studies = (study_of(Workspace(folder), models) for folder in (place, tmp_path / "b"))
    alone, whole = (tuned_trials(study)[0].score for study in studies)
    assert alone, "else nothing is compared"
    assert alone == whole, "the preset, whether its stages are trained at once or not"
    for same in (("--tuned", "workspace"), ("--tuned", tmp_path / "tuned.yaml")):
        with own_registry():
            assert bench_or_raise(*words("run", data, place, models), *more, *plugin, *same)[0] == 0
    assert {group.signature["tuned"] for group in groups_in(place)} == {content.tuned}


def test_only_the_field_of_tuned_runs_is_signed(small: RunContext) -> None:
    models = requested("updown", "transformer_base")
    values = {"updown": TunedValues(learning_rate=4.0, clip_norm=5.0), "transformer_base": TunedValues()}
    tuned = Tuned("3x2#abcdef", values)
    plain, chosen = (planner(small, tuned=each).plan(models, 2) for each in (None, tuned))
    for before, after in zip(plain, chosen, strict=True):
        assert after.signature == before.signature | {"tuned": "3x2#abcdef"}
        assert after.key != before.key
    rates = {spec.model: config_of(spec).preset.schedule.stages[0].learning_rate.peak for spec in chosen}
    assert rates == {"updown": 0.016, "transformer_base": 0.004}
    assert {spec.model: tuned_values(spec) for spec in chosen} == {
        "updown": {"learning_rate": 4.0, "clip_norm": 5.0},
        "transformer_base": {},
    }


def test_a_run_stores_the_trials_behind_its_values(small: RunContext) -> None:
    trials = (TunedTrial(state="finished", score=0.25), TunedTrial(learning_rate=0.5, clip_norm=0.0, state="pruned"))
    tuned = Tuned("3x2#abcdef", {"updown": TunedValues()}, {"updown": trials})
    [plain], [spec] = (
        planner(small, tuned=each).plan(requested("updown"), 1) for each in (replace(tuned, trials={}), tuned)
    )
    assert spec.record["tuning"]["trials"] == [
        {"learning_rate": 0.004, "state": "finished", "score": 0.25},
        {"learning_rate": 0.002, "state": "pruned", "score": None},
    ]
    assert (spec.key, spec.signature) == (plain.key, plain.signature)


def test_models_without_tuned_values_are_signed_as_untuned(small: RunContext) -> None:
    tuned, models = (
        Tuned("3x2#abcdef", {"updown": TunedValues(learning_rate=4.0)}),
        requested("majority", "updown", "m2"),
    )
    [reference, own, as_ever], [same, _, plain] = (planner(small, tuned=each).plan(models, 1) for each in (tuned, None))
    assert own.signature["tuned"] == "3x2#abcdef"
    assert (reference, as_ever) == (same, plain)


def test_the_signature_tells_space_budget_and_preset(small: RunContext) -> None:
    fields = {
        tuned_field(SearchSpace(), BUDGET, small.preset),
        tuned_field(SearchSpace(width=(0.5, 1.0)), BUDGET, small.preset),
        tuned_field(SearchSpace(), BUDGET.model_copy(update={"seed": 1}), small.preset),
        tuned_field(SearchSpace(), BUDGET.model_copy(update={"finalists": 2, "seeds": 2}), small.preset),
        tuned_field(SearchSpace(), BUDGET, small.preset.model_copy(update={"size": {"d_model": 8}})),
    }
    assert len(fields) == 5
    assert {field.partition("#")[0] for field in fields} == {"3x2", "3x2+2x2"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--preset", "expansionnet-v2-paper"), "is a paper's recipe"),
        (("--models", "human,majority"), "names nothing that is trained: human, majority"),
        (("--preset", "scenes-scst", "--stage", "rl"), "--stage 'rl' is no stage of the preset 'scenes-scst'"),
        (("--preset", "quick-sentences", "--stage", "xe"), "--stage xe: not every model trains"),
        (("--preset", "scenes-scst", "--stage", "scst", "--tune-width"), "--stage and --tune-width contradict"),
        (("--preset", "small", "--set", "parameters=2000000", "--tune-width"), "--tune-width changes nothing"),
    ],
)
def test_what_cannot_be_tuned_is_refused(options: Sequence[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=message):
        bench_or_raise("tune", "--models", "updown", "--workspace", tmp_path / "new", *options)
    assert not (tmp_path / "new").exists()


def test_without_optuna_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("harness.benchmark.tune.study.find_spec", lambda _: None)
    with pytest.raises(BenchError, match="needs Optuna") as caught:
        bench_or_raise("tune", "--workspace", tmp_path)
    assert caught.value.hint == "uv sync --inexact --extra tune"


def test_a_model_without_a_finished_study_is_named(small: RunContext, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"no finished tuning .* for updown, m2") as caught:
        from_workspace(Workspace(tmp_path))(planner(small), requested("updown", "m2"), quiet())
    assert caught.value.hint is not None
    assert caught.value.hint.startswith("type: bench tune --models updown,m2 --preset smoke --workspace ")
    assert not list(tmp_path.iterdir()), "asking makes no journal"


def tuned_file(context: RunContext) -> TunedFile:
    """Values of updown alone, found under these conditions."""
    model = TunedModel(values=TunedValues(dropout_scale=0.2), best=0.5, trials=(TunedTrial(state="finished"),))
    return TunedFile(
        command="bench tune", preset="smoke", data=context.signature["data"], features=context.signature["feat"],
        tuned=tuned_field(SearchSpace(), BUDGET, context.preset), budget=BUDGET, space=SearchSpace(),
        models={"updown": model}
    )  # fmt: skip


def dumped(content: TunedFile, **changes: Any) -> str:
    return yaml.safe_dump(content.model_copy(update=changes).model_dump(mode="json"))


def test_a_file_of_other_conditions_is_refused(small: RunContext, tmp_path: Path) -> None:
    content, file = tuned_file(small), tmp_path / "tuned.yaml"

    def find(changes: dict[str, Any], *names: str) -> Tuned | None:
        file.write_text(dumped(content, **changes), encoding="utf-8")
        return from_file(str(file))(planner(small), requested(*names), quiet())

    values = {"updown": TunedValues(dropout_scale=0.2)}
    assert find({}, "updown") == Tuned(content.tuned, values, {"updown": content.models["updown"].trials})
    with pytest.raises(BenchError, match="no values for m2"):
        find({}, "updown", "m2")
    with pytest.raises(BenchError, match="tuned under other conditions: data coco#1, here scenes#"):
        find({"data": "coco#1"}, "updown")
    with pytest.raises(BenchError, match="other conditions: preset "):
        find({"budget": BUDGET.model_copy(update={"trials": 4})}, "updown")
    for text, why in (
        ("models: [", "is not a YAML value"),
        ("models: &a [*a]", "aliases"),
        ("a" * 1_000_001, "at most"),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(BenchError, match=f"holds no tuned values: .*{why}"):
            from_file(str(file))
    with pytest.raises(BenchError, match="cannot be read: No such file"):
        from_file(str(tmp_path / "none.yaml"))


def test_files_of_the_first_release_are_read(small: RunContext, tmp_path: Path) -> None:
    """They have finalists, which were trained with further seeds."""
    budget = BUDGET.model_copy(update={"finalists": 2, "seeds": 1})
    trials = tuple(TunedTrial(state="finished", score=0.5, seed=seed) for seed in (1_000_000, 1_000_001))
    values = TunedValues(dropout_scale=0.2)
    model = TunedModel(values=values, best=0.5, deviation=0.01, trials=trials)
    label = tuned_field(SearchSpace(), budget, small.preset)
    assert label.startswith("3x2+2x1#")
    file = tmp_path / "tuned.yaml"
    changes = {"budget": budget, "tuned": label, "models": {"updown": model}}
    file.write_text(dumped(tuned_file(small), **changes), encoding="utf-8")
    tuned = from_file(str(file))(planner(small), requested("updown"), quiet())
    assert (tuned.label, tuned.values) == (label, {"updown": values})


def test_values_of_a_first_stage_are_for_a_schedule_that_goes_on(small: RunContext, tmp_path: Path) -> None:
    file = tmp_path / "tuned.yaml"
    file.write_text(dumped(tuned_file(small)), encoding="utf-8")
    [stage] = small.preset.schedule.stages
    rewards = stage.model_copy(update={"name": "scst", "objective": "self_critical"})
    longer = small.preset.schedule.model_copy(update={"stages": (stage, rewards)})
    context = replace(small, preset=small.preset.model_copy(update={"name": "longer", "schedule": longer}))
    found = from_file(str(file))(planner(context), requested("updown"), quiet())
    assert found is not None
    assert found.label == f"{tuned_file(small).tuned}:{stage.name}"
    assert found.stages == 1
    [run] = planner(context, tuned=found).plan(requested("updown"), 1)
    assert [each.dropout_scale for each in config_of(run).preset.schedule.stages] == [0.2, stage.dropout_scale]
    assert run.signature["tuned"] == found.label

    other = longer.model_copy(update={"stages": (stage.model_copy(update={"batch_size": 7}), rewards)})
    context = replace(small, preset=small.preset.model_copy(update={"name": "longer", "schedule": other}))
    with pytest.raises(BenchError, match="other conditions: preset "):
        from_file(str(file))(planner(context), requested("updown"), quiet())


def test_values_of_one_stage_are_for_it_alone(small: RunContext, tmp_path: Path) -> None:
    file, preset, space = tmp_path / "tuned.yaml", load_preset("quick-scst"), SearchSpace(stage="scst")
    context = replace(small, preset=preset)
    model = TunedModel(
        values=TunedValues(learning_rate=3.0), best=0.5, trials=(TunedTrial(learning_rate=3.0, state="finished"),)
    )
    changes = {"preset": "quick-scst", "space": space, "models": {"updown": model}}
    label = tuned_field(space, BUDGET, preset)
    file.write_text(dumped(tuned_file(context), **changes, tuned=label), encoding="utf-8")
    found = from_file(str(file))(planner(context), requested("updown"), quiet())
    assert found is not None
    assert (found.label, found.stages) == (label, "scst")
    [spec] = planner(context, tuned=found).plan(requested("updown"), 1)
    peaks = [stage["learning_rate"]["peak"] for stage in (spec.config or {})["preset"]["schedule"]["stages"]]
    first, second = (stage.learning_rate.peak for stage in preset.schedule.stages)
    assert peaks == [first, 3 * second]
    assert spec.record["tuning"]["trials"][0]["learning_rate"] == 3 * second


def test_a_second_file_is_for_a_later_stage(small: RunContext, tmp_path: Path) -> None:
    context = replace(small, preset=load_preset("quick-scst"))
    files, labels, own = {}, [], [stage.learning_rate.peak for stage in context.preset.schedule.stages]
    for factor, name in enumerate(("xe", "scst"), start=2):
        space, preset = SearchSpace(stage=name), load_preset("quick-scst", ("stages=[xe]",) if name == "xe" else ())
        model = TunedModel(values=TunedValues(learning_rate=factor), best=0.5, trials=())
        labels.append(tuned_field(space, BUDGET, preset))
        changes = {"preset": "quick-scst", "space": space, "tuned": labels[-1], "models": {"updown": model}}
        files[name] = tmp_path / name
        files[name].write_text(dumped(tuned_file(context), **changes), encoding="utf-8")

    def found(*stages: str) -> Tuned | None:
        finders = [from_file(str(files[name])) for name in stages]
        return combine_tuned(*finders)(planner(context), requested("updown"), quiet())

    tuned = found("xe", "scst")
    assert tuned is not None
    assert tuned.label == ",".join(labels)
    [spec] = planner(context, tuned=tuned).plan(requested("updown"), 1)
    peaks = [stage["learning_rate"]["peak"] for stage in (spec.config or {})["preset"]["schedule"]["stages"]]
    assert peaks == [2 * own[0], 3 * own[1]]
    applied = AppliedTuning(label=tuned.label, values=tuned.values["updown"], stages=tuned.stages)
    assert AppliedTuning.model_validate_json(applied.model_dump_json()) == applied, "as a row keeps it"
    for wrong in (("scst", "scst"), ("scst", "xe")):
        with pytest.raises(BenchError, match="it must be for one later stage"):
            found(*wrong)


def test_values_are_for_the_searched_stages_at_any_length(small: RunContext, tmp_path: Path) -> None:
    file = tmp_path / "tuned.yaml"
    plain = replace(small, preset=load_preset("smoke"))
    file.write_text(dumped(tuned_file(plain)), encoding="utf-8")
    at = "schedule.stages.0."
    longer = [f"{at}epochs=7", f"{at}validate_every=2"]

    def find(preset: Preset) -> Tuned | None:
        return from_file(str(file))(planner(replace(small, preset=preset)), requested("updown"), quiet())

    found = find(load_preset("smoke", tuple(longer)))
    assert found == find(plain.preset)
    assert found is not None
    assert (found.label, found.stages) == (tuned_file(plain).tuned, None)
    applied = AppliedTuning(label=found.label, values=found.values["updown"], stages=found.stages)
    [stage] = tuned_preset(load_preset("smoke", tuple(longer)), applied.values, applied.stages).schedule.stages
    assert (stage.epochs, stage.validate_every, stage.dropout_scale) == (7, 2, 0.2)
    for change in ("clip_norm=3", "learning_rate.peak=0.5", "learning_rate.floor=0.5", "batch_size=3"):
        with pytest.raises(BenchError, match="other conditions: preset "):
            find(load_preset("smoke", (*longer, at + change)))
