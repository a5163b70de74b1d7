"""`bench db show KEY > run.yaml; bench run run.yaml`: the same run elsewhere, and nothing but its files may change."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.config.run import config_of
from harness.utils.errors import BenchError
from results import Store
from results.store.publish import publish
from tests.harness.conftest import TINY, DrawScenes, bench_ok, bench_or_raise, run_words

SIZES = {"train": 24, "val": 4, "test": 6}
SEEN = ("--backbone", "filterbank", "--backbone-option", "grid=2")


@pytest.fixture(scope="module")
def made(draw_scenes: DrawScenes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a data set and a workspace in which a model was trained on it."""
    folder = tmp_path_factory.mktemp("made")
    data = draw_scenes(**SIZES, copy_to=folder / "data")
    bench_ok(*run_words(data, folder / "here", "show_tell,human", TINY), *SEEN)
    return folder


def key_of(workspace: Path, model: str = "show_tell") -> str:
    with closing(sqlite3.connect(workspace / "bench.sqlite")) as connection:
        [key] = connection.execute("SELECT key FROM runs WHERE model = ?", (model,)).fetchone()
    return str(key)


def results_of(workspace: Path, model: str = "show_tell") -> Any:
    """The epochs, captions and scores of a run."""
    with closing(sqlite3.connect(workspace / "bench.sqlite")) as connection:
        [run] = connection.execute("SELECT id FROM runs WHERE model = ?", (model,)).fetchone()
        queries = (
            "SELECT epoch, train_loss, val_cider FROM epochs WHERE run_id = ?",
            "SELECT split, image_id, caption FROM captions WHERE run_id = ?",
            "SELECT split, metric, value FROM scores WHERE run_id = ? ORDER BY split, metric",
        )
        return [connection.execute(query, (run,)).fetchall() for query in queries]


def shown(workspace: Path, key: str, file: Path) -> dict[str, Any]:
    """Write what `bench db show` prints to a file; gives its content."""
    file.write_text(bench_ok("db", "show", key, "--workspace", workspace).stdout, encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize("model", ["show_tell", "human"])
def test_a_run_is_the_same_in_another_workspace_and_from_moved_data(made: Path, tmp_path: Path, model: str) -> None:
    key, file = key_of(made / "here", model), tmp_path / "run.yaml"
    content = shown(made / "here", key, file)
    assert (content["kind"], content["model"]) == ("trained" if model == "show_tell" else "reference", model)
    moved = shutil.copytree(content["files"]["data"], tmp_path / "moved")
    bench_ok("run", file, "--set", f"files.data={moved}", "--workspace", tmp_path / "there")
    assert key_of(tmp_path / "there", model) == key
    assert results_of(tmp_path / "there", model) == results_of(made / "here", model)
    with Store(tmp_path / "there" / "bench.sqlite") as store:
        assert config_of(store.spec(key)).files.data == str(moved)


def test_what_is_written_is_what_is_executed(made: Path) -> None:
    with Store(made / "here" / "bench.sqlite") as store:
        config = config_of(store.spec(key_of(made / "here")))
    [stage] = config.preset.schedule.stages
    assert (stage.epochs, stage.batch_size, config.preset.size["d_model"]) == (1, 16, 16)
    assert (config.preset.features, config.preset.seeds, config.made_from.preset) == (None, 1, "quick")
    assert "size.d_model: 64 → 16" in config.made_from.deviations
    [epoch] = results_of(made / "here")[0]
    assert epoch[0] + 1 == stage.epochs


def test_a_model_stands_for_its_only_run(made: Path) -> None:
    of_key = bench_ok("db", "show", key_of(made / "here"), "--workspace", made / "here").stdout
    assert bench_ok("db", "show", "show_tell", "--workspace", made / "here").stdout == of_key


@pytest.mark.parametrize(
    ("change", "words", "complaint", "hint"),
    [
        ({"precison": "fp32"}, (), "precison", "precision"),
        ({"kind": "trainde"}, (), "kind", "db show"),
        ({"precision": "bf61"}, (), "precision", "db show"),
        ({"kind": "reference", "model": "foo", "arguments": None}, (), "arguments|foo", ""),
        ({"data": {"name": "scenes#other"}}, (), "scenes#other", "files.data"),
        ({"files": {"data": "/nowhere"}}, (), "/nowhere", ""),
        ({"files": {}}, (), "files.data", "files.data"),
        ({}, ("--seeds", 2), "--seeds", "--set files"),
        ({}, ("--set", "preset.seeds=2"), "preset.seeds=2", "files.data"),
        ({}, ("--set", "files.dat=x"), "files.dat", "data"),
        ({"execution": {"plugins": ["mine.py"]}}, (), "mine.py", "--plugin mine.py"),
    ],
)
def test_what_would_be_another_run_is_refused(
    made: Path, tmp_path: Path, change: dict[str, Any], words: tuple[Any, ...], complaint: str, hint: str
) -> None:
    file = tmp_path / "run.yaml"
    content = shown(made / "here", key_of(made / "here"), file)
    file.write_text(yaml.safe_dump({**content, **change}), encoding="utf-8")
    with pytest.raises(BenchError, match=complaint) as caught:
        bench_or_raise("run", file, *words, "--workspace", tmp_path / "there")
    assert hint in (caught.value.hint or "")
    assert not (tmp_path / "there" / "runs").exists() or not list((tmp_path / "there" / "runs").iterdir())


def test_an_edited_preset_is_signed_as_what_it_is(made: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    content = shown(made / "here", key_of(made / "here"), file)
    content["preset"]["schedule"]["stages"][0]["epochs"] = 2
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    bench_ok("run", file, "--workspace", tmp_path / "there")
    with Store(made / "here" / "bench.sqlite") as here, Store(tmp_path / "there" / "bench.sqlite") as there:
        [before] = [spec for spec in here.finished_specs() if spec.kind == "trained"]
        [after] = there.finished_specs()
    differing = {name for name in before.signature if before.signature[name] != after.signature[name]}
    assert differing == {"schedule"}


def test_captions_keep_their_card(made: Path, tmp_path: Path) -> None:
    workspace = shutil.copytree(made / "here", tmp_path / "workspace")
    data = shown(workspace, "human", tmp_path / "human.yaml")["files"]["data"]
    captions = {image: caption for split, image, caption in results_of(workspace, "human")[1] if split == "test"}
    (tmp_path / "mine.json").write_text(
        json.dumps([{"image_id": image, "caption": caption} for image, caption in captions.items()])
    )
    (tmp_path / "mine.json.card.yaml").write_text("name: Mine\npaper: a paper\n")
    bench_ok("run", "--models", f"captions:{tmp_path / 'mine.json'}", "--data", data, "--workspace", workspace)
    shown(workspace, "Mine", tmp_path / "run.yaml")
    assert "1 re-used" in bench_ok("run", tmp_path / "run.yaml", "--workspace", workspace).output
    with Store(workspace / "bench.sqlite") as store:
        assert store.spec(key_of(workspace, "Mine")).record["card"]["paper"] == "a paper"


def test_it_is_no_experiment(made: Path, tmp_path: Path) -> None:
    shown(made / "here", key_of(made / "here"), tmp_path / "run.yaml")
    for command in ("plan", "tune"):
        with pytest.raises(BenchError, match="configuration of one run"):
            bench_or_raise(command, tmp_path / "run.yaml", "--workspace", tmp_path)


def test_a_published_copy_has_no_files_and_names_how_to_give_them(made: Path, tmp_path: Path) -> None:
    publish(made / "here" / "bench.sqlite", tmp_path / "copy.sqlite")
    file, key = tmp_path / "run.yaml", key_of(made / "here")
    file.write_text(bench_ok("db", "show", key, "--db", tmp_path / "copy.sqlite").stdout, encoding="utf-8")
    assert str(made) not in file.read_text(encoding="utf-8")
    with pytest.raises(BenchError, match=r"files\.data is missing"):
        bench_or_raise("run", file, "--workspace", tmp_path / "there")
    data = shown(made / "here", key, tmp_path / "whole.yaml")["files"]["data"]
    bench_ok("run", file, "--set", f"files.data={data}", "--workspace", tmp_path / "there")
    assert results_of(tmp_path / "there") == results_of(made / "here")


def test_a_moved_data_set_re_uses_its_runs_and_another_one_does_not(
    made: Path, tmp_path: Path, draw_scenes: DrawScenes
) -> None:
    workspace = shutil.copytree(made / "here", tmp_path / "workspace")
    source = Path(yaml.safe_load(bench_ok("db", "show", "show_tell", "--workspace", workspace).stdout)["files"]["data"])
    moved = shutil.copytree(source, tmp_path / "moved")
    output = bench_ok(*run_words(moved, workspace, "show_tell,human", TINY), *SEEN).output
    assert "0 runs finished, 2 re-used" in output
    other = draw_scenes(train=25, val=4, test=6, copy_to=tmp_path / "other")
    output = bench_ok(*run_words(other, workspace, "human", TINY), *SEEN).output
    assert "1 run finished, 0 failed" in output
