"""`bench run` under a paper's recipe, end to end on pixels, at a tiny size; and captions by what it trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from harness.utils.errors import BenchError
from results import Store
from results.runs.leaderboard import leaderboard
from results.runs.reading import one_run
from tests.harness.conftest import DrawScenes, bench, bench_or_raise, run_words

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


@pytest.fixture(scope="module")
def data(draw_scenes: DrawScenes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set with one grey picture."""
    own = tmp_path_factory.mktemp("data")
    folder = draw_scenes(train=16, val=4, test=5, nocaps_per_domain=1, copy_to=own)
    grey = folder / "images" / "000000.png"
    with Image.open(grey) as picture:
        picture.convert("L").save(grey)
    return folder


def test_the_four_steps_train_score_and_caption(data: Path, tmp_path: Path) -> None:
    words = run_words(data, tmp_path, "expansionnet_v2/end-to-end", SMALL)
    seeing = ("--backbone", "test_resnet", "--backbone-weights", "random", "--image-size", 64)
    done = bench(*words, "--preset", "expansionnet-v2-paper", *seeing)
    assert done.exit_code == 0, done.output
    for stage in ("A-xe-frozen", "B-xe-trained", "C-scst-frozen", "D-scst-trained"):
        assert f"{stage} epoch 1" in done.stdout
    with Store(tmp_path / "bench.sqlite", read_only=True) as store:
        [group] = [group for group in leaderboard(store) if group.split == "test"]
        config = one_run(store, group.rows[0].keys[0]).config
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
    images = sorted((data / "images").glob("*.png"))[:3]
    captioned = bench("caption", *images, "--run", run.name, "--workspace", tmp_path)
    assert captioned.exit_code == 0, captioned.output
    assert len(captioned.stdout.splitlines()) == 3


def test_pieces_of_words_and_reinforce_train_score_and_caption(data: Path, tmp_path: Path) -> None:
    small = {
        "size.d_model": 16, "latency_repeats": 2, "vocabulary.merges": 40, "decoding.max_len": 12,
        **{f"schedule.stages.{at}.epochs": 1 for at in range(2)}, "schedule.stages.1.reinforce.max_len": 12,
    }  # fmt: skip
    words = run_words(data, tmp_path, "cgru", small)
    done = bench(*words, "--preset", "cgru-paper", "--backbone", "filterbank")
    assert done.exit_code == 0, done.output
    assert "reinforce epoch 1" in done.stdout
    with Store(tmp_path / "bench.sqlite", read_only=True) as store:
        [group] = [group for group in leaderboard(store) if group.split == "test"]
    assert group.signature["vocab"].startswith("words,bpe40,min2#")
    assert group.signature["reward"].endswith("linear[nspi1]")
    [run] = (tmp_path / "runs").iterdir()
    vocabulary = json.loads((run / "vocabulary.json").read_text())
    assert len(vocabulary["merges"]) == 40
    [image] = sorted((data / "images").glob("*.png"))[:1]
    captioned = bench("caption", image, "--run", run.name, "--workspace", tmp_path)
    assert captioned.exit_code == 0, captioned.output


def test_another_model_under_the_recipe_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="recipe for other models than blind"):
        bench_or_raise(
            *run_words(data, tmp_path, "blind", {}), "--preset", "expansionnet-v2-paper", "--backbone", "filterbank"
        )
