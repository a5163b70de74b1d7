"""Two machines without a common disk: what one has trained, the other goes on with, through the remote storage."""

import shutil
from pathlib import Path

import pytest

from harness.data.scenes.dataset import ScenesConfig, prepare_scenes
from tests.harness.benchmark.kills import killed_at, scores_and_captions
from tests.harness.conftest import TINY, bench_process, run_words

pytestmark = pytest.mark.campaign


def test_another_machine_goes_on_from_the_storage(tmp_path: Path) -> None:
    data = prepare_scenes(tmp_path / "data", ScenesConfig(train=24, val=4, test=6, nocaps_per_domain=1))
    settings = TINY | {"schedule.stages.0.epochs": 3}
    first, second, alone = (tmp_path / name for name in ("first", "second", "alone"))
    remote = f"file://{tmp_path / 'remote'}"

    def words(workspace: Path, *more: object) -> list[object]:
        return [*run_words(data, workspace, "show_tell", settings), "--backbone", "filterbank", *more]

    assert bench_process(*words(alone)).returncode == 0
    plugin, moment = killed_at("captioning")
    died = bench_process(*words(first, "--storage", remote), *plugin, **moment)
    assert died.returncode == -9, died.stderr
    second.mkdir()
    for file in first.glob("bench.sqlite*"):  # with its log; stands for a server of results
        shutil.move(file, second)
    shutil.rmtree(first)
    done = bench_process(*words(second, "--storage", remote), *plugin)
    assert done.returncode == 0, done.stderr
    assert "epoch 1:" not in done.stdout, "it goes on from the checkpoint that was sent"
    assert scores_and_captions(second) == scores_and_captions(alone)
    left = [path.name for path in (tmp_path / "remote" / "manifests" / "runs").iterdir()]
    assert len(left) == 1
    assert "checkpoint" not in (tmp_path / "remote" / "manifests" / "runs" / left[0]).read_text()
