"""`--limit N`: the first images of each scored split, under another key and signature, and in tables of their own."""

import json
from pathlib import Path

import pytest

from harness.utils.errors import BenchError
from results import Store
from results.runs.reading import captions_of, image_scores, read_runs
from results.runs.run import Run
from tests.harness.conftest import TINY, DrawScenes, bench, bench_ok, groups_in, run_words

MODELS = "updown,human"
SEEN = ("--backbone", "filterbank")


@pytest.fixture(scope="module")
def data(draw_scenes: DrawScenes) -> Path:
    return draw_scenes(train=8, val=2, test=6)


@pytest.fixture(scope="module")
def workspace(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with runs of four test images, and then of all six."""
    workspace = tmp_path_factory.mktemp("limit")
    bench_ok(*run_words(data, workspace, MODELS, TINY), *SEEN, "--limit", 4)
    bench_ok(*run_words(data, workspace, MODELS, TINY), *SEEN)
    return workspace


def runs_of(workspace: Path) -> dict[tuple[str, bool], Run]:
    """The runs by model, and whether they are limited."""
    with Store(workspace / "bench.sqlite", read_only=True) as store, store.reading() as connection:
        return {(run.model, ",limit:4" in run.conditions["data"]): run for run in read_runs(connection)}


def test_limited_runs_have_other_keys_and_tables(workspace: Path) -> None:
    runs = runs_of(workspace)
    assert set(runs) == {(model, limited) for model in ("updown", "human") for limited in (True, False)}
    assert len({run.key for run in runs.values()}) == 4
    tables = [[key for row in group.rows for key in row.keys] for group in groups_in(workspace)]
    assert sorted(tables) == sorted([[runs["updown", limited].key] for limited in (True, False)])


def test_the_first_images_are_scored(data: Path, workspace: Path) -> None:
    content = json.loads((data / "dataset_scenes.json").read_text())
    test = [image["imgid"] for image in content["images"] if image["split"] == "test"]
    runs = runs_of(workspace)
    with Store(workspace / "bench.sqlite", read_only=True) as store, store.reading() as connection:
        for limited, images in ((True, test[:4]), (False, test)):
            scores = image_scores(connection, [runs["updown", limited]], "test", "ROUGE-L")
            assert scores.images.tolist() == sorted(images)


def test_training_does_not_depend_on_it(workspace: Path) -> None:
    runs = runs_of(workspace)
    with Store(workspace / "bench.sqlite", read_only=True) as store:
        some, every = (captions_of(store, runs["updown", limited])["test"] for limited in (True, False))
    assert some == {image: every[image] for image in some}
    assert len(list((workspace / "stages").iterdir())) == 1, "the stage of the limited run was used again"


def test_a_limit_without_effect_is_refused(data: Path, tmp_path: Path) -> None:
    for limit in (6, 100):
        for command in ("run", "plan"):
            words = [command, *run_words(data, tmp_path / "workspace", MODELS, TINY)[1:], *SEEN, "--limit", limit]
            assert isinstance(bench(*words).exception, BenchError)
    assert bench(*run_words(data, tmp_path / "workspace", MODELS, TINY), *SEEN, "--limit", 0).exit_code == 2


def test_a_limited_part_of_a_split_is_captioned(data: Path, workspace: Path, tmp_path: Path) -> None:
    key = runs_of(workspace)["updown", False].key
    words = ("caption-data", data, "--run", key, "--workspace", workspace, "--force", "--out")
    captions = []
    for options in ((), ("--limit", 4)):
        bench_ok(*words, tmp_path / "captions.json", *options)
        captions.append(json.loads((tmp_path / "captions.json").read_text()))
    assert captions[1] == captions[0][:4]
    assert isinstance(bench(*words, tmp_path / "captions.json", "--limit", 6).exception, BenchError)


def test_captions_of_files_are_scored_in_part(data: Path, tmp_path: Path) -> None:
    content = json.loads((data / "dataset_scenes.json").read_text())
    captions = [
        {"image_id": image["imgid"], "caption": image["sentences"][0]["raw"]}
        for image in content["images"]
        if image["split"] == "test"
    ]
    file, report = tmp_path / "ours.json", tmp_path / "report"
    file.write_text(json.dumps(captions))
    bench_ok(
        "evaluate", file, "--references", data / "dataset_scenes.json", "--report", report, "--limit", 4,
    )  # fmt: skip
    with Store(report / "bench.sqlite", read_only=True) as store, store.reading() as connection:
        [run] = read_runs(connection)
        assert run.conditions["data"].endswith(",limit:4")
        assert "subset" not in run.conditions
        assert len(image_scores(connection, [run], "test", "ROUGE-L").images) == 4
