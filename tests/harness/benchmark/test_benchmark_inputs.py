"""What `bench run` is given: wrong options, bad pictures, an edited model, a run that a kill left untimed."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from harness.benchmark.timing import DEFERRED
from harness.utils.errors import BenchError
from results import Quantity, Store
from results.runs.gallery import gallery
from results.runs.leaderboard import leaderboard
from results.runs.reading import datasets
from results.store.rescoring import add_costs
from tests.harness.benchmark.kills import killed_at, rows
from tests.harness.conftest import TINY, DrawScenes, bench, bench_process, own_registry, run_words
from zoo.errors import ZooError


@pytest.fixture(scope="module")
def data(draw_scenes: DrawScenes) -> Path:
    """A Karpathy folder of 61 small pictures, with a nocaps-like split."""
    return draw_scenes(train=32, val=8, test=12, nocaps_per_domain=3)


def words(data: Path, workspace: Path, models: str, *extra: object) -> list[object]:
    return [*run_words(data, workspace, models, TINY), "--backbone", "filterbank", "--jobs", 1, *extra]


@pytest.mark.parametrize(
    ("models", "extra", "named"),
    [
        ("expansionet_v2", (), "expansionet_v2"),
        ("blind", ("--preset", "huge"), "'huge'"),
        ("blind", ("--set", "size.d_modle=3"), "d_modle"),
        ("blind", ("--device", "cuda:7"), "cuda:7"),
        ("blind", ("--device", "gpu"), "gpu"),
        ("blind", ("--plugin", "no_such_module"), "no_such_module"),
        ("blind", ("--jobs", "two"), "--jobs 'two'"),
        ("blind", ("--jobs", "2", "--devices", "2"), "--devices 2"),
        ("", (), "--models"),
    ],
)
def test_a_wrong_option_is_named_with_a_hint(
    data: Path, tmp_path: Path, models: str, extra: tuple[str, ...], named: str
) -> None:
    error = bench(*words(data, tmp_path / "workspace", models, *extra)).exception
    assert isinstance(error, BenchError | ZooError)
    assert named in str(error)
    assert error.hint


def test_bad_pictures_stop_the_run_unless_they_may_be_skipped(data: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(data, damaged)
    for name in ("000000.png", "000041.png"):  # of the training and of the test split
        picture = damaged / "images" / name
        picture.write_bytes(picture.read_bytes()[:200])
    stopped = bench(*words(damaged, tmp_path / "workspace", "human")).exception
    assert isinstance(stopped, BenchError)
    for part in ("2 of 61 images", "000000.png", "000041.png"):
        assert part in str(stopped)
    assert "--skip-bad-images" in (stopped.hint or "")

    skipping = bench(*words(damaged, tmp_path / "workspace", "human", "--skip-bad-images"))
    assert skipping.exit_code == 0, skipping.output
    assert "1 of them from evaluated splits" in skipping.output
    with Store(tmp_path / "workspace" / "bench.sqlite", read_only=True) as store:
        [dataset] = {group.dataset for group in leaderboard(store)}
        [fingerprint] = {group.fingerprint for group in leaderboard(store)}
        info = datasets(store)[0]
        evaluated = gallery(store, dataset, "test")
    assert any("000041.png" in reason for reason in info.skipped.values())
    assert fingerprint.endswith(",skipped:2")
    assert len(evaluated) == 11


def test_captions_that_a_kill_left_untimed_are_timed_later(data: Path, tmp_path: Path) -> None:
    plugin, moment = killed_at("timing")
    killed = bench_process(*words(data, tmp_path, "blind,transformer_base", *plugin, "--jobs", 2), **moment)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    for row in rows(tmp_path).values():
        assert "not timed yet" in (row.costs["latency_median"].reason or "")
        assert row.costs["train_seconds"].value
    again = bench(*words(data, tmp_path, "blind,transformer_base"))
    assert "2 re-used" in again.stdout
    for row in rows(tmp_path).values():
        assert row.costs["latency_median"].value
    with Store(tmp_path / "bench.sqlite") as store:
        for row in rows(tmp_path).values():
            add_costs(store, row.keys[0], {"latency_median": Quantity(None, DEFERRED, "s")}, {})
    (tmp_path / "runs" / rows(tmp_path)["blind"].keys[0] / "vocabulary.json").unlink()
    assert bench(*words(data, tmp_path, "blind,transformer_base")).exit_code == 0
    costs = {model: row.costs["latency_median"] for model, row in rows(tmp_path).items()}
    assert "vocabulary.json" in (costs["blind"].reason or "")
    assert costs["transformer_base"].value


MINE = """
from zoo import ModelCard, register_model
from zoo.models.expansionnet import ExpansionNet

class Mine(ExpansionNet):
    factor = 1.0

    def decode(self, memory, tokens):
        return super().decode(memory, tokens) * self.factor

    def step(self, tokens, state):
        logits, state = super().step(tokens, state)
        return logits * self.factor, state

arguments = {"encoder": "self_attention", "decoder": "self_attention"}
register_model(ModelCard("mine", Mine, "s", "p", 2026, "s", "MIT", "grid", arguments))
"""


def test_an_edited_model_is_trained_anew_and_its_older_run_kept(data: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    for source, said in (
        (MINE, "1 finished, 0 re-used"),
        ("# A comment.\n" + MINE, "0 finished, 1 re-used"),
        (MINE.replace("1.0", "0.5"), "mine: new, because mine.py changed since;"),
    ):
        plugin.write_text(source)
        with own_registry():
            done = bench(*words(data, tmp_path / "workspace", "mine", "--plugin", plugin))
        assert done.exit_code == 0, done.output
        assert said in " ".join(done.stdout.split())
    with Store(tmp_path / "workspace" / "bench.sqlite", read_only=True) as store:
        [group] = [group for group in leaderboard(store) if group.split == "test"]
    assert sorted(str(row.outdated) for row in group.rows) == ["None", "made before mine.py changed"]
