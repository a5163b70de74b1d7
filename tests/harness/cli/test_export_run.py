"""`bench export run KEY`, and `bench run KEY.zip` in another workspace."""

import json
import shutil
import stat
import zipfile
from pathlib import Path

import pytest
import yaml

from harness.utils.errors import BenchError
from results.store.publish import publish
from tests.conftest import plugins_forgotten
from tests.harness.cli.test_run_one import SEEN, SIZES, key_of, results_of
from tests.harness.conftest import TINY, DrawScenes, bench_ok, bench_or_raise, bench_process, run_words

PLUGIN = """
import json
from pathlib import Path

from zoo import register_model
from zoo.card import ModelCard

SIZES = Path(__file__).with_name("sizes.json")
MARK = Path(__file__).with_name("executed")


def build(**arguments):
    from zoo import create_model
    return create_model("show_tell", **arguments)


MARK.write_text("")
register_model(
    ModelCard(
        name="mine", entry=build, summary="", paper="", year=2026, source="", licence="", visual="pooled",
        arguments=json.loads(SIZES.read_text()), tiny={}, small={},
    ),
    files=[SIZES],
)
"""


@pytest.fixture(scope="module")
def made(draw_scenes: DrawScenes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a data set, a workspace with a trained run, and its zip."""
    folder = tmp_path_factory.mktemp("made")
    data = draw_scenes(**SIZES, copy_to=folder / "data")
    bench_ok(*run_words(data, folder / "here", "show_tell,human", TINY), *SEEN)
    bench_ok("export", "run", key_of(folder / "here"), "--workspace", folder / "here", "--out", folder / "run.zip")
    return folder


@pytest.fixture(scope="module")
def of_plugin(draw_scenes: DrawScenes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of a model of a plug-in that reads a file."""
    folder = tmp_path_factory.mktemp("plugin")
    data = draw_scenes(**SIZES, copy_to=folder / "data")
    (folder / "code").mkdir()
    (folder / "code" / "mine.py").write_text(PLUGIN)
    (folder / "code" / "sizes.json").write_text('{"d_model": 16}')
    plugin = ("--plugin", folder / "code" / "mine.py")
    with plugins_forgotten():
        bench_ok(*run_words(data, folder / "here", "mine", TINY), *SEEN, *plugin)
        bench_ok("export", "run", "mine", "--workspace", folder / "here", "--out", folder / "run.zip")
    return folder


def changed_zip(source: Path, target: Path, change: dict[str, str | None], *, link: bool = False) -> Path:
    """A copy of a zip with members of another content, new ones, or without those of None."""
    with zipfile.ZipFile(source) as before, zipfile.ZipFile(target, "w") as after:
        for info in before.infolist():
            if info.filename not in change:
                after.writestr(info, before.read(info))
        for name, text in change.items():
            if text is not None:
                info = zipfile.ZipInfo(name)
                info.external_attr = (stat.S_IFLNK if link else 0o644) << 16
                after.writestr(info, text)
    return target


def test_the_zip_has_all_of_the_run(made: Path) -> None:
    with zipfile.ZipFile(made / "run.zip") as archive:
        names = set(archive.namelist())
        versions, scores, captions = (
            json.loads(archive.read(name)) for name in ("versions.json", "scores.json", "captions.json")
        )
        config = yaml.safe_load(archive.read("run.yaml"))
    assert {"README.txt", "model/run.json", "model/vocabulary.json", "model/best.safetensors"} <= names
    assert (versions["key"], config["model"]) == (key_of(made / "here"), "show_tell")
    assert versions["environment"]["packages"]["torch"]
    _, stored_captions, stored_scores = results_of(made / "here")
    assert {(split, row["image_id"], row["caption"]) for split, rows in captions.items() for row in rows} == {
        *stored_captions
    }
    values = {(row["split"], row["metric"]): row["value"] for row in scores["scores"] if row["domain"] == "overall"}
    assert {(split, metric): value for split, metric, value in stored_scores}.items() >= values.items()
    assert all(row["value"] is not None or row["reason"] for row in scores["scores"])


def test_the_same_run_is_the_same_file(made: Path, tmp_path: Path) -> None:
    bench_ok("export", "run", "show_tell", "--workspace", made / "here", "--out", tmp_path / "again.zip")
    with zipfile.ZipFile(made / "run.zip") as one, zipfile.ZipFile(tmp_path / "again.zip") as other:
        assert [(info.filename, info.CRC) for info in one.infolist() if info.filename != "README.txt"] == [
            (info.filename, info.CRC) for info in other.infolist() if info.filename != "README.txt"
        ]


def test_another_workspace_makes_the_same_run_of_it(made: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(made / "run.zip") as archive:
        data = yaml.safe_load(archive.read("run.yaml"))["files"]["data"]
    moved = shutil.copytree(data, tmp_path / "moved")
    words = ("run", made / "run.zip", "--set", f"files.data={moved}", "--workspace", tmp_path / "there")
    output = bench_ok(*words).stdout
    assert key_of(tmp_path / "there") == key_of(made / "here")
    assert results_of(tmp_path / "there") == results_of(made / "here")
    assert "are those of run.zip" in output.splitlines()[-1]
    assert "re-used" in bench_ok(*words).output


def test_data_that_lie_elsewhere_are_asked_for(made: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(made / "run.zip") as archive:
        config = yaml.safe_load(archive.read("run.yaml"))
    config["files"]["data"] = str(tmp_path / "gone")
    file = changed_zip(made / "run.zip", tmp_path / "moved.zip", {"run.yaml": yaml.safe_dump(config)})
    with pytest.raises(BenchError, match=r"files\.data") as caught:
        bench_or_raise("run", file, "--workspace", tmp_path / "there")
    assert "--set files.data=" in (caught.value.hint or "")


def test_its_model_captions_a_picture(made: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(made / "run.zip") as archive:
        archive.extractall(tmp_path / "run")
    picture = next((made / "data").rglob("*.png"))
    assert bench_ok("caption", picture, "--run", tmp_path / "run" / "model").stdout.strip()


def test_other_scores_are_told(made: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(made / "run.zip") as archive:
        scores = json.loads(archive.read("scores.json"))
        versions = json.loads(archive.read("versions.json"))
    changed = next(row for row in scores["scores"] if (row["split"], row["metric"]) == ("test", "CIDEr-D"))
    changed["value"] = 1.25
    other = {"scores.json": json.dumps(scores), "versions.json": json.dumps(versions | {"key": "other-s0-0"})}
    file = changed_zip(made / "run.zip", tmp_path / "other.zip", dict(other))
    last = bench_ok("run", file, "--workspace", tmp_path / "there").stdout.splitlines()[-1]
    assert "125.00 there" in last
    assert "other-s0-0" in last


def test_code_of_a_plug_in_is_packed_and_run_by_name_alone(of_plugin: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(of_plugin / "run.zip") as archive:
        packed = {name for name in archive.namelist() if name.startswith("plugins/")}
        archive.extractall(tmp_path / "run")
    assert packed == {"plugins/mine.py", "plugins/sizes.json"}
    executed = tmp_path / "run" / "plugins" / "executed"
    with pytest.raises(BenchError, match=r"mine\.py") as caught:
        bench_or_raise("run", of_plugin / "run.zip", "--workspace", tmp_path / "there")
    assert "--plugin run/plugins/mine.py" in (caught.value.hint or "")
    assert not executed.exists()
    plugin = ("--plugin", tmp_path / "run" / "plugins" / "mine.py")
    words = ("run", of_plugin / "run.zip", *plugin, "--workspace", tmp_path / "there")
    # In a process of its own: this one has the plug-in of the other folder.
    assert bench_process(*words).returncode == 0
    assert executed.exists()
    assert key_of(tmp_path / "there", "mine") == key_of(of_plugin / "here", "mine")
    assert results_of(tmp_path / "there", "mine") == results_of(of_plugin / "here", "mine")


@pytest.mark.parametrize("change", ["edited", "gone"])
def test_a_plug_in_that_was_changed_since_is_refused(of_plugin: Path, tmp_path: Path, change: str) -> None:
    file = of_plugin / "code" / ("sizes.json" if change == "edited" else "mine.py")
    text = file.read_text()
    try:
        file.write_text('{"d_model": 17}') if change == "edited" else file.unlink()
        with pytest.raises(BenchError) as caught:
            bench_or_raise("export", "run", "mine", "--workspace", of_plugin / "here", "--out", tmp_path / "x.zip")
        assert file.name in str(caught.value)
    finally:
        file.write_text(text)
    assert not (tmp_path / "x.zip").exists()


@pytest.mark.parametrize(
    ("change", "link"),
    [
        ({"../evil.py": "x"}, False),
        ({"/etc/evil": "x"}, False),
        ({"plugins/evil.py": "/etc/passwd"}, True),
        ({"run.yaml": None}, False),
        ({"versions.json": "[]"}, False),
        ({"scores.json": '{"scores": [{"split": 1}]}'}, False),
        ({"run.yaml": "models: [updown]\n"}, False),
        ({"run.yaml": "!!python/object/apply:os.system ['true']\n"}, False),
    ],
)
def test_what_is_no_run_is_refused(made: Path, tmp_path: Path, change: dict[str, str | None], link: bool) -> None:
    file = changed_zip(made / "run.zip", tmp_path / "bad.zip", change, link=link)
    with pytest.raises(BenchError) as caught:
        bench_or_raise("run", file, "--workspace", tmp_path / "there")
    assert "bench export run" in (caught.value.hint or "")
    assert not (tmp_path / "there").exists()


def test_a_cut_zip_is_refused(made: Path, tmp_path: Path) -> None:
    content = (made / "run.zip").read_bytes()
    (tmp_path / "cut.zip").write_bytes(content[: len(content) // 2])
    with pytest.raises(BenchError):
        bench_or_raise("run", tmp_path / "cut.zip", "--workspace", tmp_path / "there")


def test_options_that_would_make_another_run_are_refused(made: Path, tmp_path: Path) -> None:
    for words in (("--models", "updown"), ("--seeds", "2"), ("--save", tmp_path / "a.yaml")):
        with pytest.raises(BenchError, match=words[0]):
            bench_or_raise("run", made / "run.zip", *words, "--workspace", tmp_path / "there")


def test_nothing_is_replaced_without_force(made: Path, tmp_path: Path) -> None:
    target = tmp_path / "mine.zip"
    target.write_text("mine")
    words = ("export", "run", "show_tell", "--workspace", made / "here", "--out", target)
    with pytest.raises(BenchError, match="exists"):
        bench_or_raise(*words)
    assert target.read_text() == "mine"
    bench_ok(*words, "--force")
    assert zipfile.is_zipfile(target)


def test_a_run_without_a_model_has_none_in_its_zip(made: Path, tmp_path: Path) -> None:
    bench_ok("export", "run", "human", "--workspace", made / "here", "--out", tmp_path / "human.zip")
    with zipfile.ZipFile(tmp_path / "human.zip") as archive:
        assert not [name for name in archive.namelist() if name.startswith("model/")]
    bench_ok("run", tmp_path / "human.zip", "--workspace", tmp_path / "there")
    assert key_of(tmp_path / "there", "human") == key_of(made / "here", "human")


def test_missing_weights_are_told(made: Path, tmp_path: Path) -> None:
    workspace = shutil.copytree(made / "here", tmp_path / "workspace")
    (workspace / "runs" / key_of(workspace) / "best.safetensors").unlink()
    result = bench_ok("export", "run", "show_tell", "--workspace", workspace, "--out", tmp_path / "a.zip")
    assert "best.safetensors" in result.stderr


def test_runs_that_cannot_be_executed_elsewhere_are_refused(made: Path, tmp_path: Path) -> None:
    for key in ("updown", "show_tell-s0-0000000000"):
        with pytest.raises(Exception, match=key) as caught:
            bench_or_raise("export", "run", key, "--workspace", made / "here", "--out", tmp_path / "a.zip")
        assert getattr(caught.value, "hint", None)
    publish(made / "here" / "bench.sqlite", tmp_path / "copy.sqlite")
    bench_ok("export", "run", "show_tell", "--db", tmp_path / "copy.sqlite", "--out", tmp_path / "a.zip")
