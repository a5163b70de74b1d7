"""`bench plan`: the options of `bench run`, runs that would be re-used, printed times, and a table for 80 columns."""

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from sqlalchemy import update

from harness.benchmark.signature import data_field, training_fields
from harness.cli.inputs import chosen_features
from harness.cli.plan import SEEDS
from harness.config.experiment import Experiment
from harness.config.load import load_preset
from harness.config.run import config_of
from harness.data.karpathy import read_karpathy
from harness.measure.environment import describe_environment
from harness.utils.errors import BenchError
from results import ImageRecord, Quantity, SplitResult, Store
from results.runs.planning import stored_variances
from results.statistics.power import detectable, least_seeds, seed_deviation_over
from results.store.schema import RunRow
from tests.harness.cli.conftest import contents
from tests.harness.conftest import (
    TINY,
    DrawScenes,
    bench,
    bench_ok,
    bench_or_raise,
    command_line,
    run_counts,
    run_words,
)
from tests.results.conftest import Make

pytestmark = pytest.mark.usefixtures("quick_runs")
FEATURES = ("--backbone", "filterbank", "--backbone-option", "grid=2")


def options(command: str) -> dict[str, Any]:
    """The options of a command, by name, with all that decides what they take."""
    found = typer.main.get_command(command_line()).commands[command].params  # type: ignore[attr-defined]
    seen = ("opts", "secondary_opts", "default", "required", "multiple", "is_flag", "min", "max", "envvar", "metavar")
    return {parameter.name: [getattr(parameter, each, None) for each in seen] for parameter in found if parameter.name}


def test_every_option_of_run_is_one_of_plan() -> None:
    planned, run = options("plan"), options("run")
    assert len(run) > 30
    own = {"save", "force"}
    assert {name: planned[name] for name in run.keys() - own} == {name: run[name] for name in run.keys() - own}
    assert planned.keys() - run.keys() == {"store", "detect", "seed_deviation", "image_deviation"}


def test_finished_runs_are_shown_as_re_used(draw_scenes: DrawScenes, tmp_path: Path) -> None:
    data, workspace = draw_scenes(train=24, val=4, test=6), tmp_path / "workspace"
    words = [*run_words(data, workspace, "blind,human", TINY), *FEATURES]
    before = bench_or_raise("plan", *words[1:])[1]
    assert not workspace.exists()
    assert "first: 34 images checked" in before
    assert row(before, "blind")[:2] == ["1", "0"]
    assert bench_or_raise(*words)[0] == 0
    left, told = contents(workspace), bench_or_raise("plan", *words[1:])[1]
    assert row(told, "blind")[:2] == row(told, "human")[:2] == ["0", "1"]
    assert "2 finished before and re-used, 0 to do" in told
    assert "first:" not in told
    assert "time: nothing to train" in told
    assert contents(workspace) == left

    words[words.index("blind,human")] = "blind,show_tell"
    more = bench_or_raise("plan", *words[1:], "--seeds", "2")[1]
    assert row(more, "blind")[:2] == ["1", "1"]
    assert row(more, "show_tell")[:2] == ["2", "0"]
    assert "first: features of 34 images (filterbank)" in " ".join(more.split())
    assert row(bench_or_raise("plan", *words[1:], "--reuse", "none")[1], "blind")[:2] == ["1", "0"], "repeated"
    assert contents(workspace) == left


def row(told: str, model: str) -> list[str]:
    """The cells of a model's line."""
    [line] = [line for line in told.splitlines() if line.split()[:1] == [model]]
    return line.split()[1:]


@pytest.mark.parametrize("columns", [80, 60])
def test_a_model_has_one_line(columns: int) -> None:
    name = "expansionnet_v2/static-8-to-256-dynamic-16"  # too long for 60 columns
    printed = bench_or_raise("plan", "--models", name, "--data", "coco", env={"COLUMNS": f"{columns}"})[1]
    [line] = [line for line in printed.splitlines() if line.startswith("expansionnet")]
    assert len(line) <= columns
    assert ("…" in line) == (columns == 60)
    assert line.split()[1:] == ["3", "?", "-"]
    assert "re-used: unknown, coco is known by its sizes alone" in printed


def test_planned_runs_are_stored_and_worked_off(draw_scenes: DrawScenes, tmp_path: Path) -> None:
    """All of them together are what one `bench run` does."""
    data, workspace = draw_scenes(train=24, val=4, test=6), tmp_path / "workspace"
    words = [*run_words(data, workspace, "blind,human", TINY)[1:], *FEATURES]
    for _ in range(2):
        code, said = bench_or_raise("plan", *words, "--jobs", "2", "--store")
        assert (code, "failed or were skipped before" in said) == (0, False)
    with Store(workspace / "bench.sqlite") as store:
        first, second = store.keys({"planned"})
        assert config_of(store.spec(first)).execution.jobs == 1, "so that captioning is timed"
        store.fail(first, "ValueError", "no", "")
    assert f"bench work {first}\n" in bench_or_raise("plan", *words, "--store")[1]
    assert bench_or_raise("work", first, "--workspace", workspace)[0] == 0
    code, said = bench_or_raise("work", "--workspace", workspace)
    assert (code, run_counts(said)["finished"]) == (0, 1), "whatever is left"
    assert bench_or_raise("work", second, "--workspace", workspace)[1].endswith(" re-used, 0 failed\n")
    assert run_counts(bench_or_raise("run", *words)[1]).items() >= {"finished": 0, "re-used": 2}.items()
    with pytest.raises(BenchError, match="--store"):
        bench_or_raise("plan", *words, "--store")
    with pytest.raises(BenchError, match="--more-metrics: not computed by bench work"):
        bench_or_raise("plan", *words, "--more-metrics", "--store")
    with pytest.raises(BenchError, match="nothing-of-this-name"):
        bench_or_raise("work", "nothing-of-this-name", "--workspace", workspace)


SMALL = ("--set", "size.d_model=16", "--set", "size.d_ff=16", "--set", "size.n_heads=2")


def test_the_command_shows_the_stages_and_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ("--models", "transformer_base,human", "--preset", "quick-scst", "--seeds", "3", *SMALL)
    printed = bench_ok("plan", *asked, "--device", "cpu", env={"COLUMNS": "80"}).stdout
    assert max(map(len, printed.splitlines())) <= 80
    assert "4 runs: models 1, seeds 3, rows without training 1" in printed
    assert "stage xe: 10 epochs, 300 steps, 15,000 images" in printed
    assert row(printed, "transformer_base") == ["3", "?", "-"]
    assert "time: unknown" in printed
    assert "power: unknown" in printed
    assert not list(tmp_path.iterdir())


def test_the_authors_epochs_have_the_authors_number_of_batches() -> None:
    tiny = ("--set", "size.max_len=74", *SMALL)
    preset = ("--preset", "expansionnet-v2-paper-frozen", *tiny)
    printed = bench_ok("plan", "--models", "transformer_base", *preset, "--data", "coco").stdout
    assert f"{8 * 11_807:,}" in printed  # of 48 captions, as their README prints


def test_stored_runs_of_the_same_conditions_and_machine_give_the_time(tmp_path: Path) -> None:
    preset = load_preset("quick", ("size.d_model=16",))
    here = {"cpu": describe_environment("cpu")["cpu"]}
    with Store(tmp_path / "bench.sqlite") as store:
        store.record_dataset(Make.dataset())
        for model, environment in (("blind", here), ("updown", {"cpu": "another processor"})):
            outcome = replace(Make.outcome(), environment=environment)
            Make.run(store, outcome, model, 0, signature=training_fields(preset))
        times = {"started_at": datetime(2026, 1, 1), "finished_at": datetime(2026, 1, 1, minute=4), "attempts": 1}
        with store.writing() as connection:
            connection.execute(update(RunRow).values(**times))
    asked = ("--models", "blind,updown,show_tell", "--workspace", tmp_path, "--set", "size.d_model=16", "--seeds", "3")
    printed = bench_ok("plan", *asked, "--device", "cpu").stdout
    assert row(printed, "blind")[2:] == ["4", "min"]
    assert row(printed, "updown")[2:] == row(printed, "show_tell")[2:] == ["-"]
    assert "time: 12 min one run after the other" in printed
    assert "time of updown, show_tell: unknown" in printed
    on_cluster = bench_ok("plan", *asked, "--executor", "ray").stdout
    assert row(on_cluster, "updown")[2:] == ["4", "min"], "of whatever machine"
    assert "time: 24 min one run after the other, by stored runs" in on_cluster
    other = bench_ok("plan", *asked, "--device", "cpu", "--set", "schedule.stages.0.epochs=9").stdout
    assert "time: unknown" in other, "another schedule"


IMAGES = range(50)


def detect(*words: str | Path) -> str:
    """What was printed, on 80 columns; expected errors are raised."""
    output = bench_ok("plan", "--detect", *words).stdout
    assert max(map(len, output.splitlines())) <= 80
    return output


def workspace(folder: Path, models: int) -> Path:
    """Three seeds of each model, on 50 images."""
    folder.mkdir()
    generator = np.random.default_rng(5)
    images = tuple(ImageRecord(i, f"{i}.png", "test", ("a ball",)) for i in IMAGES)
    with Store(folder / "bench.sqlite") as store:
        store.record_dataset(Make.dataset(split_sizes={"test": len(IMAGES)}, images=images))
        for model in ("updown", "aoanet")[:models]:
            for seed in range(3):
                scores = dict(zip(IMAGES, generator.normal(1 + seed / 50, 0.3, len(IMAGES)).tolist(), strict=True))
                overall = {"overall": {"CIDEr-D": Quantity(1.0)}}
                split = SplitResult("test", dict.fromkeys(IMAGES, "a ball"), overall, {"CIDEr-D": scores})
                Make.run(store, Make.outcome(splits=(split,)), model, seed)
    return folder


def rows(said: str, column: int = 1) -> dict[int, float]:
    """The table: differences by number of seeds."""
    cells = [line.split() for line in said.splitlines()]
    numbers = [row for row in cells if len(row) in {2, 3} and all(cell.replace(".", "", 1).isdigit() for cell in row)]
    return {int(row[0]): float(row[column]) for row in numbers}


def test_stated_variances_need_no_results(tmp_path: Path) -> None:
    said = detect("9", "--seed-deviation", "5", "--image-deviation", "40", "-w", tmp_path / "none")
    assert rows(said) == {seeds: pytest.approx(detectable(seeds, 1000, 5, 40), abs=0.005) for seeds in SEEDS}
    assert f"9 points: {least_seeds(9, 1000, 5, 40)} seeds of each model or more." in said
    assert "scenes test has 1,000 images" in said
    assert "Seeds deviate by 5, images by 40 points: as given." in said
    assert not list(tmp_path.iterdir())


def test_power_is_that_of_stored_runs(tmp_path: Path) -> None:
    place = workspace(tmp_path / "w", models=2)
    with Store(place / "bench.sqlite", read_only=True) as store:
        stored = stored_variances(store, "scenes", "test")
    assert stored is not None
    assert stored.image_deviation is not None
    least = {
        seeds: f"{detectable(seeds, 50, stored.seed_deviation, stored.image_deviation):.1f}" for seeds in (2, 3, 5)
    }
    words = ("--models", "blind", "--preset", "smoke", "--device", "cpu", "-w", place)
    printed = bench_ok("plan", *words, "--seeds", "2").stdout
    assert (
        f"power: 2 seeds and 50 images detect {least[2]} points of CIDEr-D, 3 seeds {least[3]}, 5 seeds {least[5]}\n"
        in printed
    )
    assert f"power: 3 seeds and 50 images detect {least[3]} points" in bench_ok("plan", *words, "--seeds", "5").stdout
    alone = workspace(tmp_path / "alone", models=1)
    assert "power: unknown" in bench_ok("plan", *words[:-1], alone).stdout


def test_what_no_seeds_or_too_many_would_find_is_said() -> None:
    said = detect("1", "--seed-deviation", "0.5", "--image-deviation", "60", "--data", "coco")
    assert all(part in said for part in ("not with any number of seeds", "5,000 images", "2.38 points", "28,258"))
    assert "more than 1,000 seeds" in detect("1", "--seed-deviation", "500", "--image-deviation", "1")


def test_variances_are_those_of_stored_runs(tmp_path: Path) -> None:
    place = workspace(tmp_path / "w", models=2)
    said = detect("20", "-w", place)
    assert "scenes test has 50 images" in said
    assert "2 stored models, 6 runs." in said
    assert "(95 %: " in said
    assert detect("20", "--db", place / "bench.sqlite") == said
    stated = detect("20", "-w", place, "--seed-deviation", "0.01")
    assert "Seeds deviate by 0.01 points: as given." in stated
    assert rows(stated)[2] < rows(said)[2]
    with Store(place / "bench.sqlite", read_only=True) as store:
        found = stored_variances(store, "scenes", "test")
    assert found is not None
    assert found.image_deviation is not None
    of_seeds = seed_deviation_over(200, found.seed_deviation, found.interaction_deviation, 50)
    assert rows(said, 2)[3] == pytest.approx(detectable(3, 200, of_seeds, found.image_deviation), abs=0.005)


def test_variances_are_found_by_the_path_that_run_takes(draw_scenes: DrawScenes, tmp_path: Path) -> None:
    """By the files themselves, whatever else bears the name; other files of the name are remarked on."""
    data, place = draw_scenes(train=24, val=4, test=6, copy_to=tmp_path), tmp_path / "w"
    place.mkdir()
    named = read_karpathy(data)
    for fingerprint, spread in ((data_field(named, ()), 1.0), (f"{named.name}#other", 9.0)):
        record = Make.dataset(name=named.name, fingerprint=fingerprint, split_sizes={"test": 6})
        with Store(place / "bench.sqlite") as store:
            store.record_dataset(record)
            for model in ("updown", "aoanet"):
                for seed in range(3):
                    scores = {image: 1 + spread * seed / 50 + image % 3 / 9 for image in range(6)}
                    overall = {"overall": {"CIDEr-D": Quantity(1.0)}}
                    split = SplitResult("test", dict.fromkeys(scores, "a ball"), overall, {"CIDEr-D": scores})
                    changes = {"dataset": fingerprint, "variant": fingerprint}
                    Make.run(store, Make.outcome(splits=(split,)), model, seed, **changes)
    said = detect("20", "-w", place, "--data", data)
    assert f"{named.name} test has 6 images" in said
    assert "Seeds deviate by 2.00 points" in said
    assert "other pictures or captions" not in said
    [file] = data.glob("*.json")
    file.write_text(file.read_text().replace("a red", "one red"))
    assert "other pictures or captions" in " ".join(detect("20", "-w", place, "--data", data).split())


def test_stated_variances_take_the_size_of_a_path(draw_scenes: DrawScenes) -> None:
    data = draw_scenes(train=24, val=4, test=6)
    words = ("--seed-deviation", "5", "--image-deviation", "40")
    assert "test has 6 images" in detect("9", *words, "--data", data)
    assert "test has 6 images" in detect("9", *words, "--data", next(data.glob("*.json")), "--images", data / "images")


@pytest.mark.parametrize(
    ("models", "options", "hint"),
    [
        (1, (), "--image-deviation 40"),
        (2, ("--data", "mine.json"), "--data scenes"),
        (0, ("--seed-deviation", "5"), "--seed-deviation 5 --image-deviation 40"),
        (None, ("--seed-deviation", "5"), "--seed-deviation 5 --image-deviation 40"),
    ],
)
def test_without_variances_it_says_what_to_type(
    tmp_path: Path, models: int | None, options: tuple[str, ...], hint: str
) -> None:
    place = tmp_path / "w" if models is None else workspace(tmp_path / "w", models)
    with pytest.raises(BenchError) as error:
        detect("1", "-w", place, *options)
    assert hint in str(error.value.hint)
    if models == 1:
        assert "1 stored model, 3 runs." in detect("1", "-w", place, "--image-deviation", "40")


@pytest.mark.parametrize("option", ["--detect", "--seed-deviation", "--image-deviation"])
@pytest.mark.parametrize("value", ["-1", "0", "nan", "inf", "1e-9", "1e9"])
def test_numbers_without_sense_are_refused(option: str, value: str) -> None:
    options = {"--detect": "1", "--seed-deviation": "5", "--image-deviation": "40"} | {option: value}
    done = bench("plan", *[word for pair in options.items() for word in pair])
    assert done.exit_code
    assert option in done.output + str(done.exception)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--seed-deviation 5", "only used by --detect"),
        ("--image-deviation 5", "only used by --detect"),
        ("--detect 1 --data nowhere --seed-deviation 1 --image-deviation 9", "sizes of this data set are unknown"),
        ("--store --data coco", "--store"),
        ("--store --detect 1.0", "--store: not used by --detect"),
    ],
)
def test_options_that_do_not_fit_are_refused(words: str, told: str) -> None:
    with pytest.raises(BenchError, match=told):
        bench_or_raise("plan", *words.split())


def features(preset: str = "quick", **fields: Any) -> tuple[str, bool]:
    """The backbone, and whether models see regions."""
    experiment = Experiment.model_validate({"features": fields} if fields else {})
    chosen = chosen_features(experiment, load_preset(preset))
    return chosen.backbone, chosen.regions is not None


def test_default_preset_shows_objects_of_the_embedded_data() -> None:
    assert features() == ("scenesnet", True)
    assert features(preset="smoke") == ("filterbank", False)


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({"backbone": "filterbank"}, ("filterbank", False)),
        ({"regions": "boxes"}, ("filterbank", True)),
        ({"image_size": 96}, ("filterbank", False)),
        ({"options": {"grid": "4"}}, ("filterbank", False)),
    ],
)
def test_options_of_features_replace_all_that_the_preset_names(
    named: dict[str, Any], expected: tuple[str, bool]
) -> None:
    assert features(**named) == expected


def test_other_data_ask_for_a_backbone_as_ever(tmp_path: Path) -> None:
    (tmp_path / "dataset.json").touch()
    data = {"annotations": str(tmp_path)}
    with pytest.raises(BenchError, match="needs a backbone"):
        chosen_features(Experiment.model_validate({"data": data}), load_preset("quick"))
    named = Experiment.model_validate({"data": data, "features": {"backbone": "resnet18"}})
    chosen = chosen_features(named, load_preset("quick"))
    assert (chosen.backbone, chosen.regions) == ("resnet18", None)


def test_one_image_validates_nothing(draw_scenes: DrawScenes, tmp_path: Path) -> None:
    data = draw_scenes(train=24, val=1, test=6)
    refused = bench("plan", *run_words(data, tmp_path, "blind", TINY)[1:], *FEATURES).exception
    assert isinstance(refused, BenchError)
    assert "val split has one image" in str(refused)
    bench_ok("plan", *run_words(data, tmp_path, "human", TINY)[1:])


def test_captions_are_looked_at_before_any_work(draw_scenes: DrawScenes, tmp_path: Path) -> None:
    data = draw_scenes(train=24, val=20, test=6, copy_to=tmp_path / "data")
    words = ["plan", *run_words(data, tmp_path / "workspace", "blind", TINY)[1:], *FEATURES]
    file = data / "dataset_scenes.json"
    content = json.loads(file.read_text())

    def refused(caption: str, *more: object) -> str:
        for image in content["images"]:
            image["sentences"] = [{"raw": caption.format(number=image["imgid"])}]
        file.write_text(json.dumps(content))
        error = bench(*words, *more).exception
        assert isinstance(error, BenchError)
        assert not list((tmp_path / "workspace").rglob("*.npy")), "no feature was made"
        return str(error)

    assert "script without spaces" in refused("一只灰色的山羊站在石墙上")
    assert "the vocabulary would be empty" in refused("word{number}", "--set", "vocabulary.min_count=5")
