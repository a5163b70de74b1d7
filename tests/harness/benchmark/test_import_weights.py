"""`bench import-weights`: checkpoints under the authors' names, made of random numbers, become runs that caption."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torch import Tensor

from harness.benchmark.import_weights import import_weights
from harness.benchmark.saved_model import SavedModel
from harness.config.features import FeatureConfig
from harness.config.preset import Decoding
from harness.training.checkpoint import save_weights
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from results import Store
from results.runs.leaderboard import leaderboard
from results.runs.reading import failures
from tests.harness.conftest import DrawScenes, bench
from zoo import ZooError
from zoo.weights import from_official

BODY = Path(__file__).parents[2] / "fixtures" / "zoo" / "expansionnet_model.npz"
SIZES = {"n_heads": 4, "static_lengths": [2, 4, 3]}
SWIN = {"img_size": 32, "embed_dim": 12, "depths": [1, 2], "num_heads": [1, 2], "window_size": 4}
SWIN_NAME = "swin_large_patch4_window12_384"


@pytest.fixture(scope="module")
def body() -> dict[str, Tensor]:
    """A captioner under the authors' names; it sees the 96 channels of timm's test_resnet."""
    with np.load(BODY) as arrays:
        state = {
            key.removeprefix("param/"): torch.from_numpy(arrays[key]).float()
            for key in arrays
            if key.startswith("param/")
        }
    torch.manual_seed(0)
    state["input_linear.weight"] = torch.randn(len(state["input_linear.weight"]), 96)
    return state


@pytest.fixture
def words(body: dict[str, Tensor], tmp_path: Path) -> Path:
    """A vocabulary as the authors pickle theirs, special tokens among the words."""
    entries = sorted(["PAD", "SOS", "EOS", "UNK", *(f"w{at}" for at in range(len(body["vocab_linear.weight"]) - 4))])
    path = tmp_path / "words.pickle"
    path.write_bytes(
        pickle.dumps({"word2idx_dict": {word: at for at, word in enumerate(entries)}, "idx2word_list": entries})
    )
    return path


@pytest.fixture
def backbone(tmp_path: Path) -> Path:
    torch.manual_seed(2)
    save_weights(timm.create_model("test_resnet", num_classes=0), tmp_path / "resnet.safetensors")
    return tmp_path / "resnet.safetensors"


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    Image.new("RGB", (50, 40), "green").save(tmp_path / "green.png")
    return tmp_path / "green.png"


def saved(state: dict[str, Tensor], path: Path) -> Path:
    torch.save({"model_state_dict": state, "optimizer_state_dict": {}, "scheduler_state_dict": {}}, path)
    return path


def imported(tmp_path: Path, checkpoint: Path, words: Path, features: FeatureConfig, **arguments: Any) -> Path:
    place = Workspace(tmp_path / "ws")
    key = import_weights(
        "expansionnet_v2", checkpoint, words, workspace=place, features=features, arguments=arguments or SIZES
    )
    return place.run_folder(key)


def test_a_captioner_alone_captions_through_its_backbone(
    body: dict[str, Tensor], words: Path, backbone: Path, picture: Path, tmp_path: Path
) -> None:
    done = bench(
        "import-weights", "expansionnet_v2", saved(body, tmp_path / "body.pth"), "--vocabulary", words,
        "--workspace", tmp_path / "ws", "--backbone", "test_resnet", "--backbone-weights", backbone,
        "--image-size", 64, "--set", "n_heads=4", "--set", "static_lengths=2,4,3", "--beam-size", 3,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    key = done.stdout.splitlines()[0].removeprefix("imported as ")
    run = SavedModel.load(tmp_path / "ws" / "runs" / key)
    longest = len(body["pos_encoder.weight"]) - 1
    assert run.decoding == Decoding(beam_size=3, max_len=longest, count_bos=True, cut_unfinished=True)
    captioned = bench("caption", picture, "--run", key, "--workspace", tmp_path / "ws")
    assert captioned.exit_code == 0, captioned.output
    assert set(captioned.stdout.removeprefix(f"{picture}:").split()) <= {
        f"w{at}" for at in range(len(body["vocab_linear.weight"]))
    }


def test_the_stored_model_is_the_authors(body: dict[str, Tensor], words: Path, backbone: Path, tmp_path: Path) -> None:
    features = FeatureConfig(backbone="test_resnet", weights=backbone, image_size=64)
    folder = imported(tmp_path, saved(body, tmp_path / "body.pth"), words, features)
    model, vocabulary = SavedModel.load(folder).build(folder)
    theirs = from_official("expansionnet_v2", body, **SIZES)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in theirs.state_dict().items())
    entries = sorted(["PAD", "SOS", "EOS", "UNK", *vocabulary.words])
    assert [entries.index(name) for name in ("PAD", "SOS", "EOS", "UNK")] == list(vocabulary.specials)


def test_a_checkpoint_with_its_backbone_becomes_a_model_on_pixels(
    body: dict[str, Tensor], words: Path, picture: Path, tmp_path: Path
) -> None:
    torch.manual_seed(3)
    swin = timm.create_model(SWIN_NAME, num_classes=0, **SWIN).state_dict()
    named = {
        f"swin_transf.{key.replace('layers.1.downsample', 'layers.0.downsample')}": value for key, value in swin.items()
    }
    fitting = body | {"input_linear.weight": torch.randn(len(body["input_linear.weight"]), 24)} | named
    folder = imported(
        tmp_path, saved(fitting, tmp_path / "both.pth"), words, FeatureConfig(backbone=SWIN_NAME, image_size=32),
        **SIZES, backbone_options=SWIN,
    )  # fmt: skip
    run = SavedModel.load(folder)
    assert run.model == "expansionnet_v2/end-to-end"
    assert (run.preprocessing.size, run.preprocessing.interpolation) == (32, "bilinear")
    model, _ = run.build(folder)
    merged = model.state_dict()["backbone.layers.1.downsample.reduction.weight"]
    assert torch.equal(merged, fitting["swin_transf.layers.0.downsample.reduction.weight"])
    assert bench("caption", picture, "--run", folder).exit_code == 0


def test_same_weights_give_the_same_run_others_another(
    body: dict[str, Tensor], words: Path, backbone: Path, tmp_path: Path
) -> None:
    features = FeatureConfig(backbone="test_resnet", weights=backbone, image_size=64)
    first = imported(tmp_path, saved(body, tmp_path / "body.pth"), words, features)
    assert imported(tmp_path, tmp_path / "body.pth", words, features) == first
    other = body | {"vocab_linear.bias": torch.ones_like(body["vocab_linear.bias"])}
    assert imported(tmp_path, saved(other, tmp_path / "other.pth"), words, features) != first


def test_parts_that_do_not_belong_together_are_named(
    body: dict[str, Tensor], words: Path, backbone: Path, tmp_path: Path
) -> None:
    checkpoint = saved(body, tmp_path / "body.pth")
    features = FeatureConfig(backbone="test_resnet", weights=backbone, image_size=64)
    with pytest.raises(BenchError, match="no backbone") as caught:
        imported(tmp_path, checkpoint, words, FeatureConfig(backbone=SWIN_NAME))
    assert "--backbone-weights" in (caught.value.hint or "")
    with pytest.raises(BenchError, match="96 channels, but test_vit gives 64"):
        imported(tmp_path, checkpoint, words, FeatureConfig(backbone="test_vit", weights="random"))
    (tmp_path / "few.json").write_text('["PAD", "SOS", "EOS", "UNK", "a"]')
    with pytest.raises(BenchError, match=r"words, but .*few\.json 5"):
        imported(tmp_path, checkpoint, tmp_path / "few.json", features)
    (tmp_path / "plain.json").write_text('["a", "b"]')
    with pytest.raises(BenchError, match="lacks PAD, SOS, EOS, UNK"):
        imported(tmp_path, checkpoint, tmp_path / "plain.json", features)
    less = saved({key: value for key, value in body.items() if "decoders.0.norm_1" not in key}, tmp_path / "less.pth")
    with pytest.raises(ZooError, match=r"decoder_layers\.0\.mixer_norm\.weight: not in the state dict"):
        imported(tmp_path, less, words, features)
    with pytest.raises(ZooError, match="no argument 'no_such'"):
        imported(tmp_path, checkpoint, words, features, **SIZES, no_such=3)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("aoanet", "c.pth", "--vocabulary", "w.json"), "'aoanet'"),
        (("expansionnet_v2", "absent.pth", "--vocabulary", "w.json"), "absent.pth"),
        (("expansionnet_v2", "c.pth", "--vocabulary", "w.json", "--set", "n_heads"), "no '='"),
        (("expansionnet_v2", "c.pth", "--vocabulary", "w.json", "--set", "n_heads=["), "is not a YAML value"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, arguments: tuple[str, ...], named: str) -> None:
    done = bench("import-weights", *arguments, "--workspace", tmp_path / "ws")
    assert done.exit_code == 1
    assert named in str(done.exception)


def test_an_imported_run_is_scored_but_never_ranked_with_others(
    body: dict[str, Tensor], words: Path, backbone: Path, draw_scenes: DrawScenes, tmp_path: Path
) -> None:
    features = FeatureConfig(backbone="test_resnet", weights=backbone, image_size=64)
    key = imported(tmp_path, saved(body, tmp_path / "body.pth"), words, features).name
    data = draw_scenes(train=4, val=2, test=4)
    command = ("run", "--models", f"{key},human", "--data", data, "--workspace", tmp_path / "ws", "--device", "cpu")
    seeing = ("--backbone", "test_resnet", "--backbone-weights", backbone, "--image-size", 64)
    done = bench(*command, *seeing, "--set", "latency_repeats=2", "--set", "decoding.max_len=8")
    assert done.exit_code == 0, done.output
    with Store(tmp_path / "ws" / "bench.sqlite", read_only=True) as store:
        [group] = leaderboard(store)
    assert [row.model for row in group.rows] == [key]
    assert group.rows[0].scores["CIDEr-D"].mean is not None
    assert group.rows[0].costs["train_seconds"].reason
    assert group.signature["schedule"] == f"stored:{key}"
    assert group.signature["recipe"] == "ranking=count-bos,unfinished=cut"
    assert group.signature["pretraining"] == "captions of COCO", "the authors trained it on them"

    elsewhere = bench(*command, "--backbone", "filterbank")
    assert elsewhere.exit_code == 1
    with Store(tmp_path / "ws" / "bench.sqlite", read_only=True) as store:
        [failure] = failures(store)
    assert "sees the features of test_resnet, not those of filterbank" in (failure.reason or "")
