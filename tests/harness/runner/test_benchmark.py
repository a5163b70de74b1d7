"""`bench run` from end to end on a handful of drawn scenes: stored, re-used, resumed after kills, failures as rows."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import delete, update

from harness.data.scenes.dataset import ScenesConfig, prepare_scenes
from harness.runner.timing import DEFERRED
from results import Quantity, Store
from results.db.recosting import add_costs
from results.db.schema import HeldOutScore, ImageScores, Score
from results.queries.fetch import attention_maps, dataset_info, failures, gallery, leaderboard, run_detail
from results.queries.views import Row

HUNG = {"value": None, "reason": "it hung", "low": None, "high": None}
PLUGINS = Path(__file__).parents[1] / "plugins"
TINY = (
    "schedule.stages.0.epochs=2",
    "schedule.stages.0.batch_size=8",
    "schedule.stages.0.validate_every=1",
    "schedule.stages.0.captions_per_image=3",
    "size.d_model=32",
    "size.d_ff=32",
    "latency_repeats=2",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Karpathy folder of 60 small pictures, with a nocaps-like split."""
    return prepare_scenes(tmp_path_factory.mktemp("data"), ScenesConfig(train=32, val=8, test=12, nocaps_per_domain=3))


def bench_run(
    data: Path, workspace: Path, models: str, *extra: str, kill_at: str | None = None, jobs: int = 1
) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does, in a process of its own."""
    command, environment = bench_command(data, workspace, models, jobs, kill_at)
    return subprocess.run([*command, *extra], capture_output=True, text=True, env=environment, timeout=1200)


def bench_command(
    data: Path, workspace: Path, models: str, jobs: int = 1, kill_at: str | None = None
) -> tuple[list[str], dict[str, str]]:
    """A tiny run's command line and environment."""
    command = [sys.executable, "-m", "harness.cli", "run", "--models", models, "--data", str(data)]
    command += ["--backbone", "filterbank", "--workspace", str(workspace), "--device", "cpu"]
    command += ["--jobs", str(jobs)]
    for change in TINY:
        command += ["--set", change]
    environment = dict(os.environ)
    if kill_at:
        command += ["--plugin", str(PLUGINS / "killer.py")]
        environment["BENCH_TEST_KILL_AT"] = kill_at
    return command, environment


def rows(workspace: Path) -> dict[str, Row]:
    """The test split's rows by model, references included."""
    with Store(workspace / "bench.sqlite", read_only=True) as store:
        groups = [group for group in leaderboard(store) if group.split == "test"]
        assert len(groups) == 1
        return {row.model: row for row in (*groups[0].rows, *groups[0].references)}


def scores_and_captions(workspace: Path) -> tuple[dict[str, dict[str, float | None]], list[object]]:
    """All that must not depend on kills."""
    with Store(workspace / "bench.sqlite", read_only=True) as store:
        [dataset] = {group.dataset for group in leaderboard(store)}
        pictures = [item for split in ("test", "nocaps") for item in gallery(store, dataset, split)]
        everything = [
            {name: spread.mean for name, spread in row.scores.items()}
            for group in leaderboard(store)
            for row in (*group.rows, *group.references)
        ]
        curves = [
            (epoch.train_loss, epoch.val_cider) for row in rows(workspace).values() for key in row.keys
            for epoch in run_detail(store, key).epochs
        ]  # fmt: skip
        return {str(number): scores for number, scores in enumerate(everything)}, [pictures, curves]


@pytest.fixture(scope="module")
def undisturbed(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace of one run that nothing interrupted, two models at a time."""
    workspace = tmp_path_factory.mktemp("undisturbed") / "workspace"
    done = bench_run(data, workspace, "blind,transformer_base,expansionnet_v2,human,retrieval,majority", jobs=2)
    assert done.returncode == 0, done.stdout + done.stderr
    return workspace


def test_every_cell_is_scored_costed_and_reported(undisturbed: Path) -> None:
    found = rows(undisturbed)
    assert set(found) == {"blind", "transformer_base", "expansionnet_v2", "human", "retrieval", "majority"}
    for model, row in found.items():
        for metric in ("BLEU-1", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D"):
            assert row.scores[metric].mean is not None, (model, metric, row.scores[metric].reason)
            assert row.held_out[metric].mean is not None, (model, metric, row.held_out[metric].reason)
    costs = found["expansionnet_v2"].costs
    for name in (
        "parameters",
        "gmac_beam",
        "gmac_beam_mean_length",
        "train_seconds",
        "latency_median",
        "latency_images",
    ):
        assert costs[name].value, (name, costs[name])
    assert costs["train_peak_memory_device"].value is None
    assert costs["train_peak_memory_device"].reason
    assert costs["train_beside"].value == 1
    assert (undisturbed / "report" / "index.html").is_file()
    human = found["human"]
    assert human.scores["CIDEr-D"].mean > found["blind"].scores["CIDEr-D"].mean  # type: ignore[operator]
    assert {name: spread.mean for name, spread in human.held_out.items()} == {
        name: spread.mean for name, spread in human.scores.items()
    }
    assert (human.differs["nrefs"], human.differs["heldout"]) == ("4", "each")
    assert {name for name, row in found.items() if "heldout" in row.differs} == {"human"}
    assert found["blind"].standing is not None
    assert found["blind"].standing.is_floor
    assert found["transformer_base"].standing is not None
    assert {test.floor for test in found["transformer_base"].standing.floors} == {"blind", "majority", "retrieval"}


def test_of_models_that_attend_it_is_kept_where_their_words_looked(undisturbed: Path) -> None:
    found = rows(undisturbed)
    with Store(undisturbed / "bench.sqlite", read_only=True) as store:
        maps = {model: attention_maps(store, row.keys[0], "test") for model, row in found.items()}
        captions = {
            item.image_id: {said.model: said.caption for said in item.captions}
            for item in gallery(store, dataset_info(store, "scenes").fingerprint, "test")
        }
    for model, of_model in maps.items():
        said = {image_id for image_id, by_model in captions.items() if by_model[model]}
        attending = model in {"transformer_base", "expansionnet_v2"}
        assert set(of_model) == (said if attending else set()), "all of the few images, but for captions without a word"
        for image_id, record in of_model.items():
            assert record.grid == (8, 8)
            assert " ".join(record.words) == captions[image_id][model]


def test_the_same_command_again_uses_what_is_finished(undisturbed: Path, data: Path) -> None:
    before = scores_and_captions(undisturbed)
    again = bench_run(data, undisturbed, "blind,transformer_base,expansionnet_v2,human,retrieval,majority")
    assert again.returncode == 0, again.stderr
    assert "0 finished, 6 re-used, 0 failed" in again.stdout
    assert scores_and_captions(undisturbed) == before


def test_a_missing_score_is_computed_from_the_stored_captions(
    undisturbed: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "workspace"
    shutil.copytree(undisturbed, workspace)
    before = rows(workspace)
    with Store(workspace / "bench.sqlite") as store, store.writing() as connection:
        connection.execute(update(Score).where(Score.metric == "METEOR").values(HUNG))
        connection.execute(delete(ImageScores).where(ImageScores.metric == "METEOR"))
        lost = {"value": None, "reason": "it hung"}
        connection.execute(update(HeldOutScore).where(HeldOutScore.metric == "METEOR").values(lost))
    monkeypatch.setenv("BENCH_JAVA", str(tmp_path / "no-java"))
    done = bench_run(data, workspace, "blind,human")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("no-java cannot be started") == 1, "one cell is tried, the others not in vain"
    assert "it hung" in str(rows(workspace)["human"].scores["METEOR"].reason)
    monkeypatch.delenv("BENCH_JAVA")
    done = bench_run(data, workspace, "blind,human")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("re-used, finished before; METEOR: scored now") == 2
    assert "epoch" not in done.stdout
    after = rows(workspace)
    assert after["human"].scores == before["human"].scores
    assert after["blind"].scores == before["blind"].scores
    assert after["human"].held_out == before["human"].held_out
    assert after["blind"].held_out == before["blind"].held_out
    assert after["blind"].costs == before["blind"].costs
    assert None not in (after["blind"].scores["METEOR"].low, after["blind"].scores["METEOR"].high)


def test_kills_at_any_moment_leave_the_same_results(undisturbed: Path, data: Path, tmp_path: Path) -> None:
    models = "blind,transformer_base,expansionnet_v2,human,retrieval,majority"
    for moment in ("extraction", "training", "checkpointing", "between_epochs", "captioning", "storing", "stored"):
        killed = bench_run(data, tmp_path, models, kill_at=moment)
        assert killed.returncode == -signal.SIGKILL, (moment, killed.stdout + killed.stderr)
    finished = bench_run(data, tmp_path, models)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "re-used" in finished.stdout
    assert scores_and_captions(tmp_path) == scores_and_captions(undisturbed)


def test_a_process_that_dies_costs_its_cell_alone(undisturbed: Path, data: Path, tmp_path: Path) -> None:
    models = "blind,transformer_base,expansionnet_v2,human,retrieval,majority"
    died = bench_run(data, tmp_path, models, kill_at="between_epochs", jobs=2)
    assert died.returncode == 1, died.stdout + died.stderr
    assert "3 finished, 0 re-used, 3 failed" in died.stdout
    assert "expansionnet_v2: failed: WorkerDied: its process was ended by SIGKILL" in died.stdout
    with Store(tmp_path / "bench.sqlite", read_only=True) as store:
        assert {row.error_class for row in failures(store)} == {"WorkerDied"}
    assert bench_run(data, tmp_path, models, jobs=2).returncode == 0
    assert scores_and_captions(tmp_path) == scores_and_captions(undisturbed)


def test_models_side_by_side_end_with_the_command_that_started_them(
    undisturbed: Path, data: Path, tmp_path: Path
) -> None:
    models = "blind,transformer_base,expansionnet_v2,human,retrieval,majority"
    command, environment = bench_command(data, tmp_path, models, jobs=2)
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if "xe epoch 1:" in line:
                break
        running.kill()
    again = bench_run(data, tmp_path, models, jobs=2)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "another process works on it" not in again.stdout
    assert scores_and_captions(tmp_path) == scores_and_captions(undisturbed)
    assert {row.costs["latency_median"].reason for row in rows(tmp_path).values() if row.role == "model"} == {None}


def test_what_another_command_works_on_comes_last(undisturbed: Path, data: Path) -> None:
    folder = undisturbed / "runs" / rows(undisturbed)["blind"].keys[0]
    said: list[str] = []
    command, environment = bench_command(data, undisturbed, "blind,human,majority")
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with subprocess.Popen([*command, "--rerun"], env=environment, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            for line in running.stdout:
                said.append(line.strip())
                if "waiting" in line:
                    running.terminate()
    assert [line for line in said if line.startswith("[")] == [
        "[2/3] human",
        "[3/3] majority",
        "[1/3] blind: another process works on it; waiting",
    ]


def test_captions_are_timed_later_where_a_kill_left_them_untimed(data: Path, tmp_path: Path) -> None:
    killed = bench_run(data, tmp_path, "blind,transformer_base", kill_at="timing", jobs=2)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    for row in rows(tmp_path).values():
        assert "not timed yet" in (row.costs["latency_median"].reason or "")
        assert row.costs["train_seconds"].value
    again = bench_run(data, tmp_path, "blind,transformer_base")
    assert "2 re-used" in again.stdout
    for row in rows(tmp_path).values():
        assert row.costs["latency_median"].value
    with Store(tmp_path / "bench.sqlite") as store:
        for row in rows(tmp_path).values():
            add_costs(store, row.keys[0], {"latency_median": Quantity(None, DEFERRED, "s")}, {})
    (tmp_path / "runs" / rows(tmp_path)["blind"].keys[0] / "vocabulary.json").unlink()
    assert bench_run(data, tmp_path, "blind,transformer_base").returncode == 0
    costs = {model: row.costs["latency_median"] for model, row in rows(tmp_path).items()}
    assert "vocabulary.json" in (costs["blind"].reason or "")
    assert costs["transformer_base"].value


def test_broken_models_become_rows_while_the_others_finish(undisturbed: Path, data: Path) -> None:
    done = bench_run(data, undisturbed, "broken_raises,broken_nan,blind", "--plugin", str(PLUGINS / "broken_models.py"))
    assert done.returncode == 1
    assert "1 re-used, 2 failed" in done.stdout
    assert "Traceback" not in done.stderr
    with Store(undisturbed / "bench.sqlite", read_only=True) as store:
        failed = {failure.model: failure for failure in failures(store)}
    raised, diverged = failed["broken_raises"], failed["broken_nan"]
    assert (raised.status, raised.error_class, raised.reason) == ("failed", "RuntimeError", "shapes do not fit [8]")
    assert "in encode" in (raised.log_tail or "")
    assert (diverged.status, diverged.error_class) == ("failed", "TrainingDivergedError")
    assert "step 1 " in (diverged.reason or "")


def test_bad_pictures_stop_the_run_by_name_unless_they_may_be_skipped(data: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(data, damaged)
    for name in ("000000.png", "000041.png"):  # of the training and of the test split
        picture = damaged / "images" / name
        picture.write_bytes(picture.read_bytes()[:200])
    stopped = bench_run(damaged, tmp_path / "workspace", "human")
    assert stopped.returncode == 2
    assert "2 of 61 images" in stopped.stderr
    assert "000000.png" in stopped.stderr
    assert "000041.png" in stopped.stderr
    assert "--skip-bad-images" in stopped.stderr

    skipping = bench_run(damaged, tmp_path / "workspace", "human", "--skip-bad-images")
    assert skipping.returncode == 0, skipping.stderr
    assert "1 of them from evaluated splits" in skipping.stdout
    with Store(tmp_path / "workspace" / "bench.sqlite", read_only=True) as store:
        [dataset] = {group.dataset for group in leaderboard(store)}
        [fingerprint] = {group.fingerprint for group in leaderboard(store)}
        info = dataset_info(store, dataset)
        evaluated = gallery(store, dataset, "test")
    assert any("000041.png" in reason for reason in info.skipped.values())
    assert fingerprint.endswith(",skipped:2")
    assert len(evaluated) == 11


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
def test_wrong_options_end_with_one_message(
    data: Path, tmp_path: Path, models: str, extra: tuple[str, ...], named: str
) -> None:
    done = bench_run(data, tmp_path / "workspace", models, *extra)
    assert done.returncode == 2
    assert named in done.stderr
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr


MINE = """
from zoo import ModelCard, register_model
from zoo.models.expansionnet import ExpansionNet

class Mine(ExpansionNet):
    factor = 1.0

    def decode(self, memory, tokens):
        return super().decode(memory, tokens) * self.factor

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
        done = bench_run(data, tmp_path / "workspace", "mine", "--plugin", str(plugin))
        assert done.returncode == 0, done.stdout + done.stderr
        assert said in " ".join(done.stdout.split())
    with Store(tmp_path / "workspace" / "bench.sqlite", read_only=True) as store:
        [group] = [group for group in leaderboard(store) if group.split == "test"]
    assert sorted(str(row.outdated) for row in group.rows) == ["None", "made before mine.py changed"]
