"""`bench db`, `--db` and `BENCH_DB` as a user meets them."""

from pathlib import Path

import pytest

from harness.utils.errors import BenchError
from results import Store, StoreError
from tests.harness.conftest import bench_ok, bench_or_raise
from tests.results.conftest import Make


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run in a folder of their own."""
    monkeypatch.chdir(tmp_path)


def fill(file: Path, cider: float, model: str = "blind") -> None:
    """A store with one finished run."""
    with Store(file) as store:
        store.record_dataset(Make.dataset())
        Make.run(store, Make.outcome(cider), model)


def test_upgrade_says_what_there_is(tmp_path: Path) -> None:
    fill(tmp_path / "bench.sqlite", 0.5)
    output = bench_ok("db", "upgrade", env={"BENCH_DB": str(tmp_path / "bench.sqlite")}).stdout
    assert output.startswith("nothing to do: the tables are of captionbench 2.0.0")
    assert "runs: 1 finished" in output
    assert "nothing is damaged" in output


def test_merge_into_a_new_workspace_and_conflicts(tmp_path: Path) -> None:
    fill(tmp_path / "a.sqlite", 0.5)
    output = bench_ok("db", "merge", "a.sqlite", "--workspace", "new").stdout
    assert "a.sqlite: 1 runs added, 0 completed, 0 here already; 1 data sets added or completed" in output
    fill(tmp_path / "b.sqlite", 0.75)
    code, output = bench_or_raise("db", "merge", "b.sqlite", "--db", "a.sqlite")
    assert code == 1
    assert "kept this database's blind" in output
    assert "CIDEr-D on test: 0.5 here, 0.75 there" in output
    assert "1 run" in output
    assert "bench compare HERE THERE" in output


def test_publish_writes_a_copy_that_can_be_compared(tmp_path: Path) -> None:
    fill(tmp_path / "full.sqlite", 0.5)
    assert bench_ok("db", "publish", "out.sqlite", "--db", "full.sqlite").stdout.startswith("out.sqlite: 1 runs, 0.")
    assert bench_or_raise("db", "upgrade", "--db", "out.sqlite")[0] == 0
    assert bench_or_raise("compare", "full.sqlite", "out.sqlite")[0] == 0


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("full.sqlite", "--db", "full.sqlite"), r"full\.sqlite exists already"),
        (("dangling.sqlite", "--db", "full.sqlite"), r"dangling\.sqlite exists already"),
        (("absent/out.sqlite", "--db", "full.sqlite"), "the folder absent does not exist"),
        (("out.sqlite", "--workspace", "nowhere"), "nowhere"),
    ],
)
def test_what_publish_refuses(tmp_path: Path, words: tuple[str, ...], what: str) -> None:
    fill(tmp_path / "full.sqlite", 0.5)
    (tmp_path / "dangling.sqlite").symlink_to("out.sqlite")
    with pytest.raises((BenchError, StoreError), match=what) as caught:
        bench_or_raise("db", "publish", *words)
    assert caught.value.hint
    assert (tmp_path / "dangling.sqlite").is_symlink()
    assert not (tmp_path / "out.sqlite").exists()
