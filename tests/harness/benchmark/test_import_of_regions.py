"""`bench import-weights` of models on regions and grids: checkpoints under the authors' names become runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import timm
import torch
from PIL import Image
from torch import Tensor

from harness.benchmark.import_weights import RELEASED
from harness.benchmark.saved_model import SavedModel
from harness.config.preset import Decoding
from harness.training.checkpoint import save_weights
from tests.harness.conftest import bench
from zoo import Visual
from zoo.decoding import beam_search
from zoo.weights import from_official

FIXTURES = Path(__file__).parents[2] / "fixtures" / "zoo"
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


def meshed_words(path: Path, count: int = 15) -> tuple[Path, list[str]]:
    words = [*MESHED, *(f"w{at}" for at in range(4, count))]
    path.write_text(json.dumps(words))
    return path, words


def imported(*arguments: object, workspace: Path) -> str:
    done = bench("import-weights", *arguments, "--workspace", workspace)
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()[0].removeprefix("imported as ")


def captions_of(key: str, pictures: list[Path], workspace: Path, *extra: object) -> list[str]:
    done = bench("caption", *pictures, "--run", key, "--workspace", workspace, *extra)
    assert done.exit_code == 0, done.output
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
    key = imported(
        name, tmp_path / "model.pth", "--vocabulary", vocabulary, *seeing, "--set", "max_len=18",
        workspace=tmp_path / "ws",
    )  # fmt: skip
    run = SavedModel.load(tmp_path / "ws" / "runs" / key)
    assert run.decoding == Decoding(beam_size=beam, max_len=17, length_penalty=0.0)
    assert run.pretraining == RELEASED[name].pretraining
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
    key = imported(
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
    key = imported(
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


def test_puret_through_a_backbone(tmp_path: Path, pictures: list[Path]) -> None:
    numbers = numbers_of("puret")
    vocabulary, _ = shared_words(numbers, tmp_path / "coco_vocabulary.txt")
    torch.manual_seed(0)
    save_weights(timm.create_model("test_resnet", num_classes=0), tmp_path / "resnet.safetensors")
    state = weights_of(numbers)
    state["att_embed.0.weight"] = torch.randn(len(state["att_embed.0.weight"]), 96)
    torch.save(state, tmp_path / "puret.pth")
    key = imported(
        "puret", tmp_path / "puret.pth", "--vocabulary", vocabulary, "--backbone", "test_resnet",
        "--backbone-weights", tmp_path / "resnet.safetensors", "--image-size", 192, "--set", "grid=6",
        "--set", "shift=1", workspace=tmp_path / "ws",
    )  # fmt: skip
    run = SavedModel.load(tmp_path / "ws" / "runs" / key)
    assert (run.model, run.decoding.beam_size, run.arguments["shift"]) == ("puret", 5, 1)
    assert len(captions_of(key, pictures, tmp_path / "ws")) == len(IDS)


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
    key = imported(*command, workspace=tmp_path / "ws")
    run = SavedModel.load(tmp_path / "ws" / "runs" / key)
    assert (run.model, run.preprocessing.interpolation) == ("puret/end-to-end", "bicubic")
    model, _ = run.build(tmp_path / "ws" / "runs" / key)
    assert torch.equal(model.state_dict()["backbone.conv1.0.weight"], backbone.state_dict()["conv1.0.weight"])
    assert len(captions_of(key, pictures, tmp_path / "ws")) == len(IDS)
    (tmp_path / "regions.h5").touch()
    done = bench("import-weights", *command, "--regions", tmp_path / "regions.h5", "--workspace", tmp_path / "ws")
    assert "leave out --regions" in str(getattr(done.exception, "hint", ""))


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        ("x_lan", (), "this checkpoint has no backbone"),
        ("x_lan", ("--regions", "absent.h5"), "--regions absent.h5 does not exist"),
        ("x_lan", ("--region-count", "fixed:36"), "need --regions"),
        ("dlct", (), "dlct sees regions and the grid that they are cut from"),
        ("get", (), "no released weights of 'get' can be made a run"),
    ],
)
def test_what_the_model_sees_must_be_named(
    model: str, arguments: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    numbers = numbers_of(model)
    torch.save(weights_of(numbers), tmp_path / "model.pth")
    vocabulary, _ = shared_words(numbers, tmp_path / "w.txt") if model == "x_lan" else meshed_words(tmp_path / "w.json")
    done = bench(
        "import-weights", model, tmp_path / "model.pth", "--vocabulary", vocabulary, *arguments,
        "--workspace", tmp_path / "ws",
    )  # fmt: skip
    assert done.exit_code == 1
    assert message in str(done.exception)


def test_a_vocabulary_that_does_not_fit_is_named(tmp_path: Path) -> None:
    torch.save(weights_of(numbers_of("dlct")), tmp_path / "model.pth")
    (tmp_path / "w.json").write_text('["<unk>", "<pad>", "a"]')
    words = meshed_words(tmp_path / "short.json", 14)[0]
    for vocabulary, message in ((tmp_path / "w.json", "lacks <bos>, <eos>"), (words, r"has 15 words, but")):
        done = bench(
            "import-weights", "dlct", tmp_path / "model.pth", "--vocabulary", vocabulary, "--workspace", tmp_path / "ws"
        )
        assert done.exit_code == 1
        assert message in str(done.exception)
