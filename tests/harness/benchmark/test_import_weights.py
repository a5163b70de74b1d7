"""`bench import-weights`: checkpoints under the authors' names become runs that caption as the authors' models do."""

import json
import pickle
from pathlib import Path
from typing import Any

import h5py
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
from tests.harness.conftest import DrawScenes, bench, bench_ok, failures_in, groups_in
from zoo import Visual, ZooError, model_card
from zoo.converter import from_official
from zoo.decoding import beam_search

FIXTURES = Path(__file__).parents[2] / "fixtures" / "zoo"
SIZES = {"n_heads": 4, "static_lengths": [2, 4, 3]}
SWIN = {"img_size": 32, "embed_dim": 12, "depths": [1, 2], "num_heads": [1, 2], "window_size": 4}
SWIN_NAME = "swin_large_patch4_window12_384"


@pytest.fixture(scope="module")
def body() -> dict[str, Tensor]:
    """A captioner under the authors' names; it sees the 96 channels of timm's test_resnet."""
    state = weights_of(numbers_of("expansionnet_model"))
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
    body: dict[str, Tensor], words: Path, backbone: Path, pictures: list[Path], tmp_path: Path
) -> None:
    key = imported_key(
        "expansionnet_v2", saved(body, tmp_path / "body.pth"), "--vocabulary", words, "--backbone", "test_resnet",
        "--backbone-weights", backbone, "--image-size", 64, "--set", "n_heads=4", "--set", "static_lengths=2,4,3",
        "--beam-size", 3, workspace=tmp_path / "ws",
    )  # fmt: skip
    run = SavedModel.load(tmp_path / "ws" / "runs" / key)
    longest = len(body["pos_encoder.weight"]) - 1
    assert run.decoding == Decoding(beam_size=3, max_len=longest, count_bos=True, cut_unfinished=True)
    captioned = bench_ok("caption", pictures[0], "--run", key, "--workspace", tmp_path / "ws")
    assert set(captioned.stdout.removeprefix(f"{pictures[0]}:").split()) <= {
        f"w{at}" for at in range(len(body["vocab_linear.weight"]))
    }


def test_the_stored_model_is_the_authors(body: dict[str, Tensor], words: Path, backbone: Path, tmp_path: Path) -> None:
    features = FeatureConfig(backbone="test_resnet", weights=backbone, image_size=64)
    folder = imported(tmp_path, saved(body, tmp_path / "body.pth"), words, features)
    larger = imported(tmp_path, tmp_path / "body.pth", words, features.model_copy(update={"image_size": 96}))
    assert folder != larger, "another size of images is another run"
    model, vocabulary = SavedModel.load(folder).build(folder)
    theirs = from_official("expansionnet_v2", body, **SIZES)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in theirs.state_dict().items())
    entries = sorted(["PAD", "SOS", "EOS", "UNK", *vocabulary.words])
    assert [entries.index(name) for name in ("PAD", "SOS", "EOS", "UNK")] == list(vocabulary.specials)


def test_a_checkpoint_with_its_backbone_becomes_a_model_on_pixels(
    body: dict[str, Tensor], words: Path, pictures: list[Path], tmp_path: Path
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
    bench_ok("caption", pictures[0], "--run", folder)
    with pytest.raises(BenchError, match="holds its backbone"):
        imported(tmp_path, tmp_path / "both.pth", words, FeatureConfig(backbone=SWIN_NAME, weights="random"))


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
    with pytest.raises(ZooError, match=r"layers\.0\.mixer_norm\.weight"):
        imported(tmp_path, less, words, features)
    with pytest.raises(ZooError, match="no argument 'no_such'"):
        imported(tmp_path, checkpoint, words, features, **SIZES, no_such=3)


def test_an_imported_run_is_scored_but_never_ranked_with_others(
    body: dict[str, Tensor], words: Path, backbone: Path, draw_scenes: DrawScenes, tmp_path: Path
) -> None:
    features = FeatureConfig(backbone="test_resnet", weights=backbone, image_size=64)
    key = imported(tmp_path, saved(body, tmp_path / "body.pth"), words, features).name
    data = draw_scenes(train=4, val=2, test=4)
    command = ("run", "--models", f"{key},human", "--data", data, "--workspace", tmp_path / "ws", "--device", "cpu")
    seeing = ("--backbone", "test_resnet", "--backbone-weights", backbone, "--image-size", 64)
    bench_ok(*command, *seeing, "--set", "latency_repeats=2", "--set", "decoding.max_len=8")
    [group] = groups_in(tmp_path / "ws")
    assert [row.model for row in group.rows] == [key]
    assert group.rows[0].scores["CIDEr-D"].mean is not None
    assert group.rows[0].costs["train_seconds"].reason
    assert group.signature["schedule"] == f"stored:{key}"
    assert group.signature["recipe"] == "ranking=count-bos,unfinished=cut"
    assert group.signature["pretraining"] == "captions of COCO", "the authors trained it on them"

    assert bench(*command, "--backbone", "filterbank").exit_code == 1
    [failure] = failures_in(tmp_path / "ws")
    assert "test_resnet" in (failure.reason or "")


MESHED = ["<unk>", "<pad>", "<bos>", "<eos>"]
IDS = (1, 2, 3)
Numbers = dict[str, np.ndarray[Any, Any]]


def numbers_of(name: str) -> Numbers:
    with np.load(FIXTURES / f"{name}.npz") as arrays:
        return dict(arrays)


def weights_of(numbers: Numbers) -> dict[str, Tensor]:
    return {
        key.partition("/")[2]: torch.from_numpy(value).float() if value.dtype.kind == "f" else torch.from_numpy(value)
        for key, value in numbers.items()
        if key.startswith("param/")
    }


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{image_id:012}.png" for image_id in IDS]
    for path in paths:
        Image.new("RGB", (50, 40), "green").save(path)
    return paths


def shared_words(numbers: Numbers, path: Path) -> tuple[Path, list[str]]:
    """A word a line, the unknown word last, as the authors list them; and the words by the authors' numbers."""
    words = [f"w{at}" for at in range(1, int(numbers["cfg/vocab_size"]))] + ["UNK"]
    path.write_text("\n".join(words) + "\n")
    return path, ["", *words]


def meshed_words(path: Path) -> tuple[Path, list[str]]:
    words = [*MESHED, *(f"w{at}" for at in range(4, 15))]
    path.write_text(json.dumps(words))
    return path, words


def imported_key(*arguments: object, workspace: Path) -> str:
    done = bench_ok("import-weights", *arguments, "--workspace", workspace)
    return done.stdout.splitlines()[0].removeprefix("imported as ")


def captions_of(key: str, pictures: list[Path], workspace: Path, *extra: object) -> list[str]:
    done = bench_ok("caption", *pictures, "--run", key, "--workspace", workspace, *extra)
    lines = zip(pictures, done.stdout.splitlines(), strict=True)
    return [line.removeprefix(f"{picture}:").strip() for picture, line in lines]


def spoken(model: Any, visual: Visual, words: list[str], bos: int, eos: int, **settings: Any) -> list[str]:
    """The captions of the authors' numbers, by their search: the plain sum, and nothing taken from what ended."""
    found = beam_search(model.eval(), model.encode(visual), bos=bos, eos=eos, length_penalty=0.0, **settings)
    captions = []
    for row in found.tokens[:, 0].tolist():
        said = row[: row.index(eos)] if eos in row else row
        captions.append(" ".join(words[at] for at in said if words[at] not in {*MESHED, "UNK"}))
    return captions


@pytest.mark.parametrize(("name", "beam"), [("x_lan", 3), ("x_transformer", 2)])
def test_models_whose_zero_is_begin_end_and_padding(name: str, beam: int, pictures: list[Path], tmp_path: Path) -> None:
    numbers = numbers_of(name)
    state = weights_of(numbers)
    torch.save({f"module.{key}": value for key, value in state.items()}, tmp_path / "model.pth")
    vocabulary, words = shared_words(numbers, tmp_path / "coco_vocabulary.txt")
    features, mask = numbers["in/att_feats"].astype(np.float16), numbers["in/att_mask"].astype(bool)
    with h5py.File(tmp_path / "regions.hdf5", "w") as file:
        for image_id, rows, valid in zip(IDS, features, mask, strict=True):
            file[str(image_id)] = rows[valid]
    seeing = ("--regions", tmp_path / "regions.hdf5")
    key = imported_key(
        name, tmp_path / "model.pth", "--vocabulary", vocabulary, *seeing, "--set", "max_len=18",
        workspace=tmp_path / "ws",
    )  # fmt: skip
    run = SavedModel.load(tmp_path / "ws" / "runs" / key)
    assert run.decoding == Decoding(beam_size=beam, max_len=17, length_penalty=0.0)
    released = model_card(name).released
    assert released is not None
    assert run.pretraining == released.pretraining
    theirs = from_official(name, state)
    visual = Visual(torch.from_numpy(features).float(), torch.from_numpy(mask))
    expected = spoken(theirs, visual, words, 0, 0, beam_size=beam, max_len=17)
    assert any(expected)
    assert captions_of(key, pictures, tmp_path / "ws", *seeing) == expected


def test_dlct_on_regions_and_grids_of_one_file(pictures: list[Path], tmp_path: Path) -> None:
    numbers = numbers_of("dlct")
    state = weights_of(numbers)
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "dlct.pth")
    vocabulary, words = meshed_words(tmp_path / "words.json")
    regions, boxes, grids = (numbers[f"in/{part}"] for part in ("regions", "boxes", "grids"))
    valid = regions.any(-1)
    with h5py.File(tmp_path / "both.hdf5", "w") as file:
        for at, image_id in enumerate(IDS):
            file[f"{image_id}_features"] = regions[at, valid[at]].astype(np.float32)
            file[f"{image_id}_boxes"] = boxes[at, valid[at]] * 400
            file[f"{image_id}_size"] = np.array((400, 400))
            file[f"{image_id}_grids"] = grids[at].astype(np.float32)
    seeing = ("--regions", tmp_path / "both.hdf5")
    key = imported_key(
        "dlct", tmp_path / "dlct.pth", "--vocabulary", vocabulary, *seeing, "--set", "n_heads=4",
        "--set", "codes=false", "--beam-size", 3, workspace=tmp_path / "ws",
    )  # fmt: skip
    run = SavedModel.load(tmp_path / "ws" / "runs" / key)
    assert (run.model, run.arguments["quirks"], run.arguments["codes"]) == ("dlct", True, False)
    theirs = from_official("dlct", state, n_heads=4, codes=False)
    half = [torch.from_numpy(part.astype(np.float16)).float() for part in (regions, grids)]
    visual = Visual(
        half[0], torch.from_numpy(valid), torch.from_numpy(boxes).float() * torch.from_numpy(valid)[..., None],
        grid=half[1].view(3, 7, 7, -1),
    )  # fmt: skip
    expected = spoken(theirs, visual, words, 2, 3, beam_size=3, max_len=run.decoding.max_len)
    assert any(expected)
    assert captions_of(key, pictures, tmp_path / "ws", *seeing) == expected


def test_rstnet_on_a_file_of_grids_alone(pictures: list[Path], tmp_path: Path) -> None:
    numbers = numbers_of("rstnet")
    state = weights_of(numbers)
    torch.save(state, tmp_path / "rstnet.pth")
    vocabulary, words = meshed_words(tmp_path / "words.json")
    with h5py.File(tmp_path / "grids.hdf5", "w") as file:
        for image_id, cells in zip(IDS, numbers["in/grids"], strict=True):
            file[f"{image_id}_grids"] = cells.astype(np.float32)
    seeing = ("--regions", tmp_path / "grids.hdf5")
    key = imported_key(
        "rstnet", tmp_path / "rstnet.pth", "--vocabulary", vocabulary, *seeing, "--set", "n_heads=4",
        workspace=tmp_path / "ws",
    )  # fmt: skip
    side = torch.arange(7).float()
    row, column = (part.flatten() for part in torch.meshgrid(side, side, indexing="ij"))
    boxes = torch.stack((column, row, column + 1, row + 1), -1).expand(3, -1, -1) / 7
    half = torch.from_numpy(numbers["in/grids"].astype(np.float16)).float()
    visual = Visual(half, torch.ones(half.shape[:2], dtype=torch.bool), boxes)
    longest = SavedModel.load(tmp_path / "ws" / "runs" / key).decoding.max_len
    expected = spoken(from_official("rstnet", state, n_heads=4), visual, words, 2, 3, beam_size=5, max_len=longest)
    assert any(expected)
    assert captions_of(key, pictures, tmp_path / "ws", *seeing) == expected


def test_puret_with_its_backbone_sees_pixels(tmp_path: Path, pictures: list[Path]) -> None:
    numbers = numbers_of("puret")
    vocabulary, _ = shared_words(numbers, tmp_path / "coco_vocabulary.txt")
    torch.manual_seed(0)
    backbone = timm.create_model("test_resnet", num_classes=0)
    state = weights_of(numbers)
    state["att_embed.0.weight"] = torch.randn(len(state["att_embed.0.weight"]), 96)
    state |= {f"backbone.{key}": value for key, value in backbone.state_dict().items()}
    torch.save({f"module.{key}": value for key, value in state.items()}, tmp_path / "puret.pth")
    command = (
        "puret", tmp_path / "puret.pth", "--vocabulary", vocabulary, "--backbone", "test_resnet", "--image-size", 192,
        "--set", "grid=6", "--set", "shift=1",
    )  # fmt: skip
    key = imported_key(*command, workspace=tmp_path / "ws")
    run = SavedModel.load(tmp_path / "ws" / "runs" / key)
    assert (run.model, run.preprocessing.interpolation) == ("puret/end-to-end", "bicubic")
    model, _ = run.build(tmp_path / "ws" / "runs" / key)
    assert torch.equal(model.state_dict()["backbone.conv1.0.weight"], backbone.state_dict()["conv1.0.weight"])
    assert len(captions_of(key, pictures, tmp_path / "ws")) == len(IDS)
    (tmp_path / "regions.h5").touch()
    done = bench("import-weights", *command, "--regions", tmp_path / "regions.h5", "--workspace", tmp_path / "ws")
    assert "leave out --regions" in str(getattr(done.exception, "hint", ""))


@pytest.mark.parametrize(
    ("model", "arguments", "named"),
    [
        ("x_lan", (), "no backbone"),
        ("x_lan", ("--regions", "absent.h5"), "--regions absent.h5"),
        ("x_lan", ("--region-count", "fixed:36"), "--regions"),
        ("dlct", (), "dlct"),
        ("get", (), "'get'"),
        ("expansionnet_v2", ("--set", "n_heads"), "'n_heads'"),
        ("expansionnet_v2", ("--set", "n_heads=["), "n_heads"),
    ],
)
def test_wrong_options_are_named(model: str, arguments: tuple[str, ...], named: str, tmp_path: Path) -> None:
    state = weights_of(numbers_of("expansionnet_model" if model == "expansionnet_v2" else model))
    torch.save(state, tmp_path / "model.pth")
    vocabulary = shared_words(numbers_of("x_lan"), tmp_path / "w.txt")[0] if model == "x_lan" else None
    vocabulary = vocabulary or meshed_words(tmp_path / "w.json")[0]
    for checkpoint in (tmp_path / "model.pth", tmp_path / "absent.pth"):
        given = (model, checkpoint, "--vocabulary", vocabulary, *arguments, "--workspace", tmp_path / "ws")
        done = bench("import-weights", *given)
        assert isinstance(done.exception, BenchError)
        assert (named if checkpoint.is_file() or model == "get" else "") in str(done.exception)
    assert not list((tmp_path / "ws").glob("runs/*"))
