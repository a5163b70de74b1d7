"""Attempts at a wrong score that nobody notices: other code, other data of a plug-in, other versions of packages."""

import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
from torch.nn import functional

from harness.key import check_plugins, code_of, code_of_model, plugin_digests
from harness.measure import environment
from harness.utils.errors import BenchError
from harness.utils.plugins import load_plugin
from reports.html.report import write_report
from results import Store
from results.runs.leaderboard import Row, leaderboard
from results.runs.reading import finished
from tests.harness.conftest import (
    TINY,
    DrawScenes,
    bench,
    bench_or_raise,
    failures_in,
    own_registry,
    run_counts,
    run_words,
    tables_of,
)

MINE = """
import functools
import json
from pathlib import Path

from zoo import ModelCard, register_model
from zoo.models.expansionnet import ExpansionNet

SIZES = Path(__file__).with_name("mine.json")

class Mine(ExpansionNet):
    @functools.wraps(ExpansionNet.__init__)
    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.sizes = json.loads(SIZES.read_text())

arguments = {"encoder": "self_attention", "decoder": "self_attention"}
register_model(ModelCard("mine", Mine, "s", "p", 2026, "s", "MIT", "grid", arguments), files=[SIZES])
"""


@pytest.fixture(scope="module")
def data(draw_scenes: DrawScenes) -> Path:
    return draw_scenes(train=8, val=2, test=3)


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(data: Path, tmp_path: Path) -> Run:
    """`run(models, *more)`: the exit code of a `bench run`, and what it printed on one line."""

    def running(models: str, *more: object) -> tuple[int, str]:
        words = [*run_words(data, tmp_path / "workspace", models, TINY), "--backbone", "filterbank", "--jobs", 1]
        with own_registry():
            code, said = bench_or_raise(*words, *more)
        return code, " ".join(said.split())

    return running


def plugin_of(folder: Path) -> Path:
    """A plug-in with a model `mine`, which reads `mine.json` beside it when it is built."""
    plugin = folder / "mine.py"
    plugin.write_text(MINE)
    (folder / "mine.json").write_text('{"width": 1}')
    return plugin


def rows(workspace: Path) -> list[Row]:
    with Store(workspace / "bench.sqlite", read_only=True) as store:
        return [row for group in leaderboard(store) if group.split == "test" for row in group.rows]


def test_a_file_that_a_plugin_names_is_in_the_key(run: Run, tmp_path: Path) -> None:
    plugin = plugin_of(tmp_path)
    assert run_counts(run("mine", "--plugin", plugin)[1]).items() >= {"finished": 1, "re-used": 0}.items()
    assert run_counts(run("mine", "--plugin", plugin)[1]).items() >= {"finished": 0, "re-used": 1}.items()
    (tmp_path / "mine.json").write_text('{"width": 2}')
    printed = run("mine", "--plugin", plugin, "--seeds", 2)[1]
    assert "new, because mine.json changed since" in printed
    assert run_counts(printed).items() >= {"finished": 2, "re-used": 0}.items()
    assert sorted(row.seeds for row in rows(tmp_path / "workspace")) == [(0,), (0, 1)]


def test_a_named_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    plugin = plugin_of(tmp_path)
    (tmp_path / "mine.json").unlink()
    with pytest.raises(BenchError, match=r"mine: no such file: .*mine\.json"):
        load_plugin(str(plugin))


def test_a_process_keeps_the_digest_of_the_code_that_it_loaded(tmp_path: Path) -> None:
    plugin = plugin_of(tmp_path)
    with own_registry():
        load_plugin(str(plugin))
        loaded = code_of_model("mine", {}).model
        planned = plugin_digests()
        (tmp_path / "mine.json").write_text('{"width": 22}')
        plugin.write_text(MINE.replace("self.sizes", "self.widths"))
        assert code_of_model("mine", {}).model == loaded, "what was edited is not in the code that runs here"
        check_plugins(planned)
    with own_registry():
        load_plugin(str(plugin))
        assert code_of_model("mine", {}).model != loaded
        with pytest.raises(BenchError, match=r"mine\.py"):
            check_plugins(planned)


def test_a_packages_modules_and_named_files_count_and_nothing_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "attacked" / "inner"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("WIDTH = 1\n")
    (package / "models.py").write_text(
        "import functools, pathlib\nfrom zoo import ModelCard, register_model\n"
        "from zoo.models.expansionnet import ExpansionNet as Net\nfrom attacked.inner import WIDTH\n"
        "weights = pathlib.Path(__file__).with_name('weights.bin')\n"
        "register_model(ModelCard('attacked', Net, 's', 'p', 2026, 's', 'MIT', 'grid'), files=[weights])\n"
    )
    (package / "beside.json").write_text("{}")
    digests = []
    for value in (b"1", b"1", b"2"):
        for name in ("attacked", "attacked.inner", "attacked.inner.models"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        (package / "weights.bin").write_bytes(value)
        with own_registry():
            load_plugin("attacked.inner.models")
            digests.append(plugin_digests())
            files = code_of({}).files
    assert digests[0] == digests[1] != digests[2]
    own = {name for name in files if name.partition("/")[0] not in {"harness", "zoo"}}
    names = ("__init__.py", "inner/__init__.py", "inner/models.py", "inner/weights.bin")
    assert own == {f"attacked/{name}" for name in names}


def test_two_plugins_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    load_plugin(str(plugin_of(tmp_path)))
    with pytest.raises(BenchError, match=r"another plug-in is named mine\.py"):
        load_plugin(str(plugin_of(tmp_path / "other")))


def test_a_plugin_is_in_the_key_of_every_run_beside_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(functional, "layer_norm", functional.layer_norm)  # is put back
    patch = tmp_path / "patch.py"
    patch.write_text(
        "from torch.nn import functional\nusual = functional.layer_norm\n"
        "functional.layer_norm = lambda *given, **named: 0.1 * usual(*given, **named)\n"
    )
    models, workspace = "transformer_base,majority", tmp_path / "workspace"
    assert run_counts(run(models)[1]).items() >= {"finished": 2}.items()
    counts = run_counts(run(models, "--plugin", patch, "--seeds", 2, "--first-seed", 1)[1])
    assert counts.items() >= {"finished": 3, "re-used": 0}.items()
    with Store(workspace / "bench.sqlite", read_only=True) as store:
        beside = {run.key: run.environment["plugins"] for run in finished(store)}
    assert [sorted(each) for each in beside.values()].count(["patch.py"]) == 3
    usual, patched = sorted(rows(workspace), key=lambda row: row.seeds)
    assert (usual.seeds, usual.plugins, usual.outdated) == ((0,), (), None)
    assert (patched.seeds, patched.plugins, patched.outdated) == ((1, 2), ("patch.py",), None)
    counts = run_counts(run(models)[1])
    assert counts.items() >= {"finished": 0, "re-used": 2}.items(), "the key of a run without plug-ins is what it was"
    assert "Computed with --plugin patch.py" in bench("export", "leaderboard", "--workspace", workspace).output


def test_runs_planned_with_other_plugins_are_refused(tmp_path: Path) -> None:
    check_plugins({})
    load_plugin(str(plugin_of(tmp_path)))
    check_plugins(plugin_digests())
    for planned in ({}, {"mine.py": "0"}, {**plugin_digests(), "more.py": "0"}):
        with pytest.raises(BenchError, match=r"mine\.py|more\.py"):
            check_plugins(planned)


def test_a_seed_of_other_versions_is_added_only_where_somebody_says_so(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, version = tmp_path / "workspace", environment.package_version
    assert run("blind,majority")[0] == 0
    monkeypatch.setattr(environment, "package_version", lambda name: "1.0.0" if name == "numpy" else version(name))
    code, said = run("blind,majority", "--seeds", 2)
    assert code == 1
    assert run_counts(said).items() >= {"failed": 1}.items()
    reason = str(failures_in(workspace)[0].reason)
    assert f"made by numpy {metadata.version('numpy')}; here is numpy 1.0.0" in reason
    assert "accept_mixed=true" in reason
    code, said = run("blind", "--seeds", 2, "--set", "accept_mixed=true")
    assert code == 0
    mark = "numpy 1.0.0 (seed 1)"
    assert [row.other_hardware for row in rows(workspace)] == [mark]
    assert mark in tables_of(workspace)
    assert "blind (other hardware)" in said
    with Store(workspace / "bench.sqlite", read_only=True) as store:
        assert mark in write_report(store, tmp_path / "report").read_text(encoding="utf-8")
    for format in ("markdown", "csv", "json"):
        assert mark in bench("export", "leaderboard", "--workspace", workspace, "--format", format).output.replace(
            "\\", ""
        )
    assert run("blind", "--seeds", 2, "--reuse", "none")[0] == 0
    assert [row.other_hardware for row in rows(workspace)] == [None]


def test_versions_that_were_not_recorded_are_no_other_ones(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "package_version", lambda _: None)
    assert run("blind")[0] == 0
    monkeypatch.undo()
    assert run("blind", "--seeds", 2)[0] == 0


def test_bench_work_executes_each_run_beside_its_own_plugins(data: Path, tmp_path: Path) -> None:
    workspace, plugin = tmp_path / "workspace", plugin_of(tmp_path)
    for models, more in (("mine", ("--plugin", plugin)), ("blind", ())):
        words = [*run_words(data, workspace, models, TINY)[1:], "--backbone", "filterbank", *more]
        with own_registry():
            assert bench_or_raise("plan", *words, "--store")[0] == 0
    assert bench_or_raise("work", "--workspace", workspace)[0] == 0
    with Store(workspace / "bench.sqlite", read_only=True) as store:
        assert {run.model: list(run.environment["plugins"]) for run in finished(store)} == {
            "mine": ["mine.py"],
            "blind": [],
        }
