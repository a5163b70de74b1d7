"""`bench run` under a paper's recipe, end to end on pixels, at a tiny size; and captions by what it trained."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from harness.data.scenes.dataset import ScenesConfig, prepare_scenes
from results import Store
from results.queries.fetch import leaderboard, run_detail

SMALL = {
    "size.d_model": 16, "size.d_ff": 16, "size.n_heads": 2, "size.n_encoder_layers": 1, "size.n_decoder_layers": 1,
    "small_models": True, "decoding.max_len": 8, "decoding.beam_size": 2, "latency_repeats": 2,
    "vocabulary.min_count": 2,
    **{f"schedule.stages.{at}.epochs": 1 for at in range(4)},
    **{f"schedule.stages.{at}.batch_size": 8 for at in range(4)},
    **{f"schedule.stages.{at}.validation_beam_size": 1 for at in range(4)},
    **{f"schedule.stages.{at}.self_critical.max_len": 6 for at in (2, 3)},
    "schedule.stages.0.learning_rate.warmup_steps": 3, "schedule.stages.0.learning_rate.peak": 0.01,
}  # fmt: skip


def bench(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "harness.cli", *map(str, arguments)], capture_output=True, text=True, timeout=1200
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = prepare_scenes(tmp_path_factory.mktemp("data"), ScenesConfig(train=16, val=4, test=5, nocaps_per_domain=1))
    grey = folder / "images" / "000000.png"
    with Image.open(grey) as picture:
        picture.convert("L").save(grey)
    return folder


def test_the_four_steps_train_score_and_caption(data: Path, tmp_path: Path) -> None:
    done = bench(
        "run", "--models", "expansionnet_v2/end-to-end", "--preset", "expansionnet-v2-paper", "--data", data,
        "--backbone", "test_resnet", "--backbone-weights", "random", "--image-size", 64, "--workspace", tmp_path,
        "--device", "cpu", *(part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for stage in ("A-xe-frozen", "B-xe-trained", "C-scst-frozen", "D-scst-trained"):
        assert f"{stage} epoch 1" in done.stdout
    with Store(tmp_path / "bench.sqlite", read_only=True) as store:
        [group] = [group for group in leaderboard(store) if group.split == "test"]
        config = run_detail(store, group.rows[0].keys[0]).config
    assert group.track == "paper"
    assert config["evaluated"] == {"test": 5, "nocaps": 3}
    named = {deviation.partition(":")[0] for deviation in config["shipped_preset"]["deviations"]}
    assert named <= SMALL.keys()
    assert {"size.d_model", "decoding.beam_size", "schedule.stages.3.batch_size"} <= named
    assert "gradients=summed" in group.signature["recipe"]
    assert group.signature["vocab"].startswith("expansionnet,min2#")
    [row] = group.rows
    assert row.scores["CIDEr-D"].mean is not None

    [run] = (tmp_path / "runs").iterdir()
    vocabulary = json.loads((run / "vocabulary.json").read_text())
    assert vocabulary["preparation"] == "expansionnet"
    assert json.loads((run / "run.json").read_text())["preprocessing"]["non_rgb"] == "black"
    captioned = bench(
        "caption", *sorted((data / "images").glob("*.png"))[:3], "--run", run.name, "--workspace", tmp_path
    )
    assert captioned.returncode == 0, captioned.stderr
    assert len(captioned.stdout.splitlines()) == 3


def test_pieces_of_words_and_reinforce_train_score_and_caption(data: Path, tmp_path: Path) -> None:
    small = {
        "size.d_model": 16, "latency_repeats": 2, "vocabulary.merges": 40, "decoding.max_len": 12,
        **{f"schedule.stages.{at}.epochs": 1 for at in range(2)}, "schedule.stages.1.reinforce.max_len": 12,
    }  # fmt: skip
    done = bench(
        "run", "--models", "cgru", "--preset", "cgru-paper", "--data", data, "--backbone", "filterbank",
        "--workspace", tmp_path, "--device", "cpu",
        *(part for key, value in small.items() for part in ("--set", f"{key}={value}")),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "reinforce epoch 1" in done.stdout
    with Store(tmp_path / "bench.sqlite", read_only=True) as store:
        [group] = [group for group in leaderboard(store) if group.split == "test"]
    assert group.signature["vocab"].startswith("words,bpe40,min2#")
    assert group.signature["reward"].endswith("linear[nspi1]")
    [run] = (tmp_path / "runs").iterdir()
    vocabulary = json.loads((run / "vocabulary.json").read_text())
    assert len(vocabulary["merges"]) == 40
    captioned = bench(
        "caption", *sorted((data / "images").glob("*.png"))[:1], "--run", run.name, "--workspace", tmp_path
    )
    assert captioned.returncode == 0, captioned.stderr


def test_another_model_under_the_recipe_is_refused(data: Path, tmp_path: Path) -> None:
    done = bench(
        "run", "--models", "blind", "--preset", "expansionnet-v2-paper", "--data", data, "--backbone", "filterbank",
        "--workspace", tmp_path, "--device", "cpu",
    )  # fmt: skip
    assert done.returncode == 2
    assert "recipe for other models than blind" in done.stderr
