"""`bench run` from end to end on a handful of drawn scenes: stored, re-used, resumed after kills, failures as rows."""

import fcntl
import multiprocessing
import shutil
import signal
from pathlib import Path

import pytest

from harness.benchmark.costs import DEFERRED
from harness.utils.errors import BenchError
from results import Quantity, Store
from results.runs.gallery import gallery
from results.runs.leaderboard import leaderboard
from results.runs.reading import attention_maps, datasets, failures, finished
from results.store.rescoring import add_costs
from tests.harness.benchmark.kills import PLUGINS, killed_at, rows, scores_and_captions
from tests.harness.conftest import (
    FORK,
    TINY,
    DrawScenes,
    bench,
    bench_forked,
    bench_ok,
    own_registry,
    run_counts,
    run_words,
)
from zoo.errors import ZooError

MODELS = "blind,transformer_base,expansionnet_v2,human,retrieval,majority"
SETTINGS = TINY | {
    "schedule.stages.0.epochs": 2,
    "schedule.stages.0.batch_size": 8,
    "schedule.stages.0.captions_per_image": 3,
    "size.d_model": 32,  # and so many steps that captions have words
    "size.d_ff": 32,
}


@pytest.fixture(scope="module")
def data(draw_scenes: DrawScenes) -> Path:
    """A Karpathy folder of 61 small pictures, with a nocaps-like split."""
    return draw_scenes(train=32, val=8, test=12, nocaps_per_domain=3)


def tiny_words(data: Path, workspace: Path, models: str, *extra: object) -> list[object]:
    """The words of a run of one epoch, whose captions are of no matter."""
    return [*run_words(data, workspace, models, TINY), "--backbone", "filterbank", "--jobs", 1, *extra]


def words(data: Path, workspace: Path, models: str, *extra: object, jobs: int = 1) -> list[object]:
    """The words of a tiny run."""
    return [*run_words(data, workspace, models, SETTINGS), "--backbone", "filterbank", "--jobs", jobs, *extra]


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace of one run that nothing interrupted, one model at a time."""
    workspace = tmp_path_factory.mktemp("undisturbed") / "workspace"
    bench_ok(*words(data, workspace, MODELS))
    return workspace


def test_where_words_looked_is_stored_for_models_that_attend(undisturbed: Path) -> None:
    found = rows(undisturbed)
    with Store(undisturbed / "bench.sqlite", read_only=True) as store:
        maps = {model: attention_maps(store, row.keys[0], "test") for model, row in found.items()}
        captions = {
            item.image_id: {said.model: said.caption for said in item.captions}
            for item in gallery(store, datasets(store)[0].fingerprint, "test", finished(store))
        }
    assert any(captions[image_id]["transformer_base"] for image_id in captions)
    for model, of_model in maps.items():
        said = {image_id for image_id, by_model in captions.items() if by_model[model]}
        attending = model in {"transformer_base", "expansionnet_v2"}
        assert set(of_model) == (said if attending else set()), "all of the few images, but for captions without a word"
        for image_id, record in of_model.items():
            assert record.grid == (8, 8)
            assert " ".join(record.words) == captions[image_id][model]


def test_kills_at_any_moment_leave_the_same_results(undisturbed: Path, data: Path, tmp_path: Path) -> None:
    moments = ("extraction", "training", "checkpointing", "between_epochs", "captioning", "storing", "stored")
    killers = [killed_at(moment) for moment in moments]
    for plugin, moment in killers:
        killed = bench_forked(*words(data, tmp_path, MODELS, *plugin), **moment)
        assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    assert "re-used" in bench_ok(*words(data, tmp_path, MODELS, *killers[0][0])).stdout
    assert scores_and_captions(tmp_path) == scores_and_captions(undisturbed)


@pytest.mark.usefixtures("forked_workers")
def test_a_process_that_dies_costs_its_cell_alone(undisturbed: Path, data: Path, tmp_path: Path) -> None:
    plugin, environment = killed_at("between_epochs")
    died = bench_forked(*words(data, tmp_path, MODELS, *plugin, jobs=2), **environment)
    assert died.returncode == 1, died.stdout + died.stderr
    assert run_counts(died.stdout).items() >= {"finished": 3, "re-used": 0, "failed": 3}.items()
    assert "expansionnet_v2: failed: WorkerDied" in died.stdout
    with Store(tmp_path / "bench.sqlite", read_only=True) as store:
        assert {row.error_class for row in failures(store)} == {"WorkerDied"}
    bench_ok(*words(data, tmp_path, MODELS, *plugin))
    assert scores_and_captions(tmp_path) == scores_and_captions(undisturbed)


def test_parallel_models_end_with_the_command_that_started_them(
    undisturbed: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, environment = killed_at("parent")
    with monkeypatch.context() as forking:
        forking.setattr(multiprocessing, "get_context", lambda _: FORK)
        kill = bench_forked(*words(data, tmp_path, MODELS, *plugin, jobs=2), **environment)
        most = bench(*words(data, tmp_path, "blind,expansionnet_v2,human,retrieval", *plugin, jobs=2))
    assert kill.returncode == -signal.SIGKILL, kill.stderr
    assert most.exit_code == 0, most.output
    monkeypatch.setenv("BENCH_JAVA", "/no/java")  # new processes would start METEOR, which takes seconds
    assert "another process works on it" not in bench_ok(*words(data, tmp_path, MODELS, *plugin, jobs=2)).stdout
    assert scores_and_captions(tmp_path) == scores_and_captions(undisturbed)
    assert {row.costs["train_beside"].value for row in rows(tmp_path).values() if row.model == "expansionnet_v2"} == {1}
    assert {row.costs["latency_median"].reason for row in rows(tmp_path).values() if row.role == "model"} == {None}


def test_what_another_command_works_on_comes_last(undisturbed: Path, data: Path, tmp_path: Path) -> None:
    workspace = shutil.copytree(undisturbed, tmp_path / "workspace")  # this command ends before it counts facts
    folder = workspace / "runs" / rows(workspace)["human"].keys[0]
    again = words(data, workspace, "blind,human,majority", "--reuse", "none")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = bench_forked(*again, on_line=lambda line: signal.SIGTERM if "waiting" in line else None)
    said = [line.strip() for line in done.stdout.splitlines()]
    assert [line for line in said if line.startswith("[")] == ["[2/3] majority", "[3/3] blind", "[1/3] human"]
    assert "waiting" in said[-1]


def test_broken_models_become_rows_while_the_others_finish(undisturbed: Path, data: Path) -> None:
    plugin = ("--plugin", PLUGINS / "broken_models.py", "--reuse", "any")
    done = bench(*words(data, undisturbed, "broken_raises,broken_nan,blind", *plugin))
    assert done.exit_code == 1
    assert run_counts(done.stdout).items() >= {"re-used": 1, "failed": 2}.items()
    assert "Traceback" not in done.stderr
    with Store(undisturbed / "bench.sqlite", read_only=True) as store:
        failed = {failure.model: failure for failure in failures(store)}
    raised, broken = failed["broken_raises"], failed["broken_nan"]
    assert (raised.status, raised.error_class) == ("failed", "RuntimeError")
    assert raised.reason == "shapes do not fit [3] (broken_models.py, line 15)"
    assert "in encode" in (raised.log_tail or "")
    assert (broken.status, broken.error_class) == ("failed", "BrokenLawError")
    assert "NaN" in (broken.reason or "")


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
        ("blind", ("--jobs", "2", "--devices", "2"), "--jobs 2 and --devices 2 contradict"),
        ("", (), "--models"),
    ],
)
def test_a_wrong_option_is_named_with_a_hint(
    data: Path, tmp_path: Path, models: str, extra: tuple[str, ...], named: str
) -> None:
    error = bench(*tiny_words(data, tmp_path / "workspace", models, *extra)).exception
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

    skipping = bench_ok(*words(damaged, tmp_path / "workspace", "human", "--skip-bad-images"))
    assert "1 of them from evaluated splits" in skipping.output
    with Store(tmp_path / "workspace" / "bench.sqlite", read_only=True) as store:
        [fingerprint] = {group.fingerprint for group in leaderboard(store)}
        info = datasets(store)[0]
        evaluated = gallery(store, info.fingerprint, "test", finished(store))
    assert any("000041.png" in reason for reason in info.skipped.values())
    assert fingerprint.endswith(",skipped:2")
    assert len(evaluated) == 11


@pytest.mark.usefixtures("forked_workers")
def test_captions_that_a_kill_left_untimed_are_timed_later(data: Path, tmp_path: Path) -> None:
    plugin, moment = killed_at("timing")
    killed = bench_forked(*tiny_words(data, tmp_path, "blind,transformer_base", *plugin, "--jobs", 2), **moment)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    for row in rows(tmp_path).values():
        assert "not timed yet" in (row.costs["latency_median"].reason or "")
        assert row.costs["train_seconds"].value
    counts = run_counts(bench(*tiny_words(data, tmp_path, "blind,transformer_base", *plugin)).stdout)
    assert counts.items() >= {"re-used": 2}.items()
    for row in rows(tmp_path).values():
        assert row.costs["latency_median"].value
    with Store(tmp_path / "bench.sqlite") as store:
        for row in rows(tmp_path).values():
            add_costs(store, row.keys[0], {"latency_median": Quantity(None, DEFERRED, "s")}, {})
    (tmp_path / "runs" / rows(tmp_path)["blind"].keys[0] / "vocabulary.json").unlink()
    bench_ok(*tiny_words(data, tmp_path, "blind,transformer_base", *plugin))
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
        (MINE, "1 run finished, 0 failed"),
        ("# A comment.\n" + MINE, "0 runs finished, 1 re-used"),
        (MINE.replace("1.0", "0.5"), "mine: new, because mine.py changed since;"),
    ):
        plugin.write_text(source)
        with own_registry():
            done = bench(*tiny_words(data, tmp_path / "workspace", "mine", "--plugin", plugin))
        assert done.exit_code == 0, done.output
        assert said in " ".join(done.stdout.split())
    with Store(tmp_path / "workspace" / "bench.sqlite", read_only=True) as store:
        [group] = [group for group in leaderboard(store) if group.split == "test"]
    assert sorted(str(row.outdated) for row in group.rows) == ["None", "made before mine.py changed"]
