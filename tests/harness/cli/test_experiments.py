"""An experiment is a file: what it says, what options change of it, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.cli.inputs import chosen_features
from harness.config.experiment import Experiment, change_content, read_experiment, validate_experiment
from harness.config.load import load_preset
from harness.utils.errors import BenchError
from results import Store
from results.runs.reading import finished, read_runs
from tests.harness.conftest import ROOT, TINY, DrawScenes, bench_ok, bench_or_raise, run_words

BOARDS = sorted((ROOT / "baselines" / "experiments").glob("*.yaml"))


def written(path: Path, **content: Any) -> Path:
    path.write_text(yaml.safe_dump(content))
    return path


def saved(path: Path, *words: object) -> Experiment:
    """What `bench run WORDS --save` writes, read again."""
    bench_ok("run", *words, "--save", path)
    return validate_experiment(read_experiment(path), str(path))


def test_images_that_an_experiment_leaves_out_are_recorded_or_refused(tmp_path: Path) -> None:
    references = {str(image_id): ["a dog runs", "a brown dog"] for image_id in (7, 8, 9)}
    (tmp_path / "references.json").write_text(json.dumps(references))
    common = {"models": ["human"], "workspace": "workspace"}
    data = {"annotations": "references.json", "left_out": {8: "blurred"}}
    bench_ok("run", written(tmp_path / "known.yaml", data=data, **common))
    with Store(str(tmp_path / "workspace" / "bench.sqlite"), read_only=True) as store, store.reading() as connection:
        [run] = read_runs(connection)
    assert run.conditions["data"].endswith(",skipped:1")
    data["left_out"] = {8: "blurred", 10: "not there"}
    with pytest.raises(BenchError, match=r"left_out.* does not have: 10\n"):
        bench_or_raise("run", written(tmp_path / "unknown.yaml", data=data, **common))


def test_a_saved_experiment_is_what_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ours.json").write_text("[]")
    (tmp_path / "weights.safetensors").touch()
    words = "--models blind,captions:ours.json --seeds 2 --budgets 1,2"
    words += " --set size.d_model=32 --set schedule.stages.0.epochs=3"
    words += " --backbone resnet18 --backbone-weights weights.safetensors --backbone-option level=4 --regions windows:3"
    words += (
        " --region-count fixed:4 --image-size 64 --jobs 2 --device cpu --workspace w --clip org/clip --hub dtype=fp32"
    )
    (tmp_path / "below").mkdir()
    for place in (tmp_path / "e.yaml", tmp_path / "below" / "e.yaml"):
        experiment = saved(place, *words.split())
        assert experiment.models == ("blind", f"captions:{tmp_path / 'ours.json'}")
        assert experiment.changes == {"size.d_model": 32, "schedule.stages.0.epochs": 3}
        assert experiment.budgets == (1, 2)
        assert experiment.features is not None
        assert experiment.features.weights == tmp_path / "weights.safetensors"
        assert experiment.features.options == {"level": "4"}
        assert experiment.features.regions is not None
        assert (experiment.features.regions.source, experiment.features.regions.keep) == ("windows:3", "fixed:4")
        assert (experiment.execution.jobs, experiment.execution.device) == (2, "cpu")
        assert (experiment.metrics.clip, experiment.hub) == ("org/clip", {"dtype": "fp32"})
        assert experiment.workspace == tmp_path / "w"
        assert saved(place.with_name("again.yaml"), place) == experiment


def test_options_go_before_the_file_and_the_file_before_the_preset(tmp_path: Path) -> None:
    features = {"backbone": "resnet18", "regions": {"source": "boxes", "bins": 2}}
    file = written(tmp_path / "e.yaml", models="updown,blind", seeds=5, preset="quick", features=features)
    words = ("--seeds", 2, "--region-count", "fixed:3", "--set", "features.image_size=64")
    experiment = saved(tmp_path / "changed.yaml", file, *words)
    assert (experiment.models, experiment.seeds) == (("updown", "blind"), 2)
    chosen = chosen_features(experiment, load_preset("quick"))
    assert (chosen.backbone, chosen.image_size) == ("resnet18", 64)
    assert chosen.regions is not None
    assert (chosen.regions.source, chosen.regions.keep, chosen.regions.bins) == ("boxes", "fixed:3", 2)


def test_set_reaches_the_experiment_first_and_else_the_preset() -> None:
    content: dict[str, Any] = {"features": {"backbone": "resnet18"}}
    changes = ("features.regions.source=boxes", "seeds=4", "accept_mixed=true", "size.d_model=32", "stages=[xe]")
    change_content(content, changes)
    experiment = validate_experiment(content, "here")
    assert (experiment.seeds, experiment.accept_mixed) == (4, True)
    assert experiment.features is not None
    assert experiment.features.backbone == "resnet18"
    assert experiment.changes == {"size.d_model": 32, "stages": ["xe"]}


@pytest.mark.parametrize(
    ("short", "change", "expected"),
    [
        ({"features": {"regions": "windows:3"}}, "features.regions.bins=2", {"source": "windows:3", "bins": 2}),
        ({"features": {"graphs": "scenes:noise=0.2"}}, "features.graphs.labels=5", {"noise": 0.2, "labels": 5}),
    ],
)
def test_set_keeps_what_a_short_form_says(short: dict[str, Any], change: str, expected: dict[str, Any]) -> None:
    change_content(short, (change,))
    features = validate_experiment(short, "here").features
    assert features is not None
    [part] = [part for part in (features.regions, features.graphs) if part is not None]
    assert {name: getattr(part, name) for name in expected} == expected


def test_graphs_of_scenes_need_one_option() -> None:
    experiment = validate_experiment({"features": {"graphs": "scenes:noise=0.2"}}, "here")
    for preset in ("quick", "smoke"):
        chosen = chosen_features(experiment, load_preset(preset))
        assert chosen.regions is not None
        assert chosen.regions.source == "boxes"
        assert chosen.graphs is not None
        assert chosen.graphs.noise == 0.2


@pytest.mark.parametrize(
    ("content", "data", "preset"),
    [
        ({}, "scenes", "quick"),
        ({"data": {"limit": 5}}, "scenes", "quick"),
        ({"data": "scenes"}, "scenes", "quick"),
        ({"data": {"annotations": "scenes-6k"}}, "scenes-6k", "quick-6k"),
        ({"preset": "smoke", "data": {"limit": 5}}, "scenes", "smoke"),
        ({"preset": "quick", "data": "scenes-6k"}, "scenes-6k", "quick"),
        ({"data": "photos"}, "photos", "quick"),
    ],
)
def test_embedded_data_have_their_preset(content: dict[str, Any], data: str, preset: str) -> None:
    experiment = validate_experiment(content, "here")
    assert (experiment.data.annotations, experiment.preset) == (data, preset)


def test_a_file_runs_as_its_options_do(tmp_path: Path, draw_scenes: DrawScenes) -> None:
    data = draw_scenes(train=8, val=2, test=3)
    words = [*run_words(data, tmp_path / "w", "blind,majority", TINY)[1:], "--backbone", "filterbank", "--jobs", 1]
    bench_ok("run", *words, "--save", tmp_path / "e.yaml")
    assert not (tmp_path / "w").exists(), "nothing is run"
    assert bench_or_raise("run", tmp_path / "e.yaml")[0] == 0
    with Store(tmp_path / "w" / "bench.sqlite", read_only=True) as store:
        keys = {run.key for run in finished(store)}
    assert len(keys) == 2
    assert "2 finished before" in bench_ok("plan", tmp_path / "e.yaml").stdout
    assert "2 finished before" in bench_ok("plan", *words).stdout, "and by the options that were saved"


@pytest.mark.parametrize("board", BOARDS, ids=lambda path: path.stem)
def test_the_boards_are_experiments(board: Path) -> None:
    experiment = validate_experiment(read_experiment(board), board.name)
    load_preset(experiment.preset, changes=experiment.changes)
    assert experiment.workspace.is_absolute()
    assert board.stem in {path.stem for path in (ROOT / "baselines").glob("*.sqlite")}


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ({"modles": ["blind"]}, "modles"),
        ({"features": {"regoins": "boxes"}}, r"features\.regoins"),
        ({"seeds": "many"}, "seeds"),
        ({"seeds": 0}, "seeds"),
        ({"budgets": [2, 1]}, "budgets"),
        ({"execution": {"jobs": 0}}, "jobs"),
        ({"data": {"annotations": ["a"]}}, r"data\.annotations"),
        ({"set": {"decoding.beam_sizes": 3}}, "beam_sizes"),
        ({"preset": "quik"}, "quik"),
    ],
)
def test_what_is_no_experiment_is_refused_by_name(tmp_path: Path, content: dict[str, Any], named: str) -> None:
    file = written(tmp_path / "e.yaml", **content)
    with pytest.raises(BenchError, match=named) as caught:
        bench_or_raise("run", file, "--workspace", tmp_path / "w")
    assert caught.value.hint
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize("text", ["- blind", "models: [", "!!python/object/apply:os.system [ls]", "3"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "e.yaml"
    file.write_text(text)
    with pytest.raises(BenchError, match=r"e\.yaml"):
        read_experiment(file)


def test_nested_changes_keep_the_rest_of_their_group(tmp_path: Path) -> None:
    file = written(tmp_path / "e.yaml", set={"size": {"d_model": 64}, "schedule.stages.0.epochs": 1})
    experiment = saved(tmp_path / "s.yaml", file, "--set", "size.d_ff=32")
    preset = load_preset("quick", changes=experiment.changes)
    usual = load_preset("quick").size
    assert preset.size == {**usual, "d_model": 64, "d_ff": 32}


def test_paths_of_a_file_count_from_its_folder(tmp_path: Path) -> None:
    for name in ("mine.py", "theirs.json"):
        (tmp_path / name).touch()
    (tmp_path / "package").mkdir()
    content = {"models": "updown,captions:theirs.json", "plugins": ["mine.py", "package"], "db": "new.sqlite"}
    experiment = validate_experiment(read_experiment(written(tmp_path / "e.yaml", **content)), "here")
    assert experiment.models == ("updown", f"captions:{tmp_path / 'theirs.json'}")
    assert experiment.plugins == (str(tmp_path / "mine.py"), "package")
    assert experiment.db == str(tmp_path / "new.sqlite")


def test_inputs_that_are_not_there_are_named_together_by_their_whole_paths(tmp_path: Path) -> None:
    data = {"annotations": "../dataset.json.gz", "images": "../pictures"}
    (tmp_path / "experiments").mkdir()
    file = written(tmp_path / "experiments" / "e.yaml", models=["blind"], data=data, features={"weights": "w.pth"})
    with pytest.raises(BenchError) as refused:
        bench_or_raise("run", file, "--workspace", tmp_path / "workspace")
    paths = ("dataset.json.gz", "pictures", "experiments/w.pth")
    assert all(str(tmp_path / path) in str(refused.value) for path in paths)
    assert not (tmp_path / "workspace").exists()


def test_what_the_environment_says_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BENCH_DB", "postgresql://me:secret@host/captions")
    bench_ok("run", "--models", "blind", "--save", tmp_path / "e.yaml")
    assert yaml.safe_load((tmp_path / "e.yaml").read_text()) == {"models": ["blind"]}


@pytest.mark.parametrize(
    "words", [("--backbone", "resnet18"), ("--regions", "boxes"), ("--set", "features.regions=boxes")]
)
def test_a_value_in_place_of_a_mapping_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    file = written(tmp_path / "e.yaml", features="resnet50")
    with pytest.raises(BenchError, match="features"):
        bench_or_raise("run", file, *words, "--save", tmp_path / "s.yaml")


def test_saving_replaces_nothing_without_force(tmp_path: Path) -> None:
    file = written(tmp_path / "e.yaml", seeds=1)
    with pytest.raises(BenchError, match="exists"):
        bench_or_raise("run", "--seeds", 2, "--save", file)
    with pytest.raises(BenchError, match="read"):
        bench_or_raise("run", file, "--seeds", 2, "--save", file, "--force")
    assert yaml.safe_load(file.read_text()) == {"seeds": 1}


@pytest.mark.parametrize(
    ("change", "meant"),
    [("featurs.regions=boxes", "--set features.regions=boxes"), ("budget=[1,2]", "--set budgets=[1,2]")],
)
def test_the_nearest_field_of_the_experiment_is_named(change: str, meant: str) -> None:
    with pytest.raises(BenchError, match="there is no field") as caught:
        bench_or_raise("plan", "--set", change)
    assert meant in (caught.value.hint or "")
