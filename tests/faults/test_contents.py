"""Files that hold something else than they should, or lost blocks: sentences with the file's name, and no wait."""

import io
import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.benchmark.pretrained import Pretrained
from harness.config.features import FeatureConfig
from harness.data.backbones.opening import open_backbone
from harness.data.dataset import Dataset, Sample
from harness.data.formats.predictions import read_predictions
from harness.data.formats.references import read_references
from harness.data.opening import open_dataset
from harness.data.regions.hdf5 import RegionHdf5
from harness.data.regions.opening import RegionFolder
from harness.data.regions.regions import BadRegions, RawRegions
from harness.data.vocabularies import SubwordVocabulary, load_vocabulary
from harness.data.vocabulary import Vocabulary
from harness.measure import isolated
from harness.training.checkpoint import load_weights
from harness.utils.errors import BenchError
from results.errors import StoreError
from tests.harness.conftest import bench
from zoo.checkpoints import read_checkpoint
from zoo.converter import read_sizes
from zoo.errors import ZooError

REFERENCES = {"images": [{"id": 1}], "annotations": [{"image_id": 1, "caption": "a red ball"}]}


def test_the_limit_and_how_to_raise_it_are_told(tmp_path: Path) -> None:
    file = tmp_path / "references.json"
    file.write_text(json.dumps(REFERENCES))
    words = ("evaluate", file, "--references", file)
    error = bench(*words, env={"BENCH_MAX_FILE_GB": "1e-8"}).exception
    assert str(file) in str(error)
    assert "BENCH_MAX_FILE_GB" in str(error)
    error = bench(*words, env={"BENCH_MAX_FILE_GB": "much"}).exception
    assert isinstance(error, StoreError)
    assert "BENCH_MAX_FILE_GB='much'" in str(error)


def test_arrays_that_are_devices_are_faults_of_their_image(tmp_path: Path) -> None:
    folder = tmp_path / "bu_att"
    folder.mkdir()
    (folder / "1.npz").symlink_to("/dev/zero")
    (folder / "2.npy").symlink_to("/dev/zero")
    os.mkfifo(folder / "3.npy")
    samples = tuple(Sample(number, f"{number}.jpg", "test", ()) for number in (1, 2, 3))
    found = dict(RegionFolder(folder, Dataset("numbered", tmp_path, samples, "")).read([1, 2, 3]))
    assert [("a device" in str(found[i]), "a pipe" in str(found[i])) for i in found] == [(1, 0), (1, 0), (0, 1)]
    assert not any(isinstance(each, BadRegions) for each in found.values())


def test_vocabularies_weights_and_pretrained_models_are_regular_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BenchError, match="it is a pipe"):
        load_vocabulary(tmp_path / "pipe")
    with pytest.raises(BenchError, match="a pipe"):
        load_weights(torch.nn.Linear(1, 1), tmp_path / "pipe")
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(BenchError, match=r"config\.json .*pipe"):
        Pretrained("git/pretrained", str(tmp_path)).open(None)  # type: ignore[arg-type] # the files are looked at first


def test_pictures_in_a_folder_that_results_cannot_name_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    image = {"imgid": 1, "filename": "1.png", "split": "train", "sentences": [{"raw": "A dog."}]}
    (folder / "dataset.json").write_text(json.dumps({"images": [image]}))
    words = ("--models", "human", "--data", folder, "--backbone", "filterbank", "--workspace", "w")
    for command in ("run", "plan"):
        assert "not text in UTF-8" in str(bench(command, *words).exception)
    assert not any(Path("w").rglob("*.npy"))


IMAGES = range(1, 30)


def test_hdf5_with_zeroed_blocks_is_told_or_read(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    file, draw = tmp_path / "regions.h5", np.random.default_rng(0)
    with h5py.File(file, "w") as opened:
        for image_id in IMAGES:
            opened[f"{image_id}_features"] = draw.random((5, 8), dtype=np.float32)
            opened[f"{image_id}_boxes"] = draw.random((5, 4), dtype=np.float32)
    whole = file.read_bytes()
    told, named = 0, 0
    for start in range(0, len(whole), 512):
        file.write_bytes(whole[:start] + bytes(512) + whole[start + 512 :])
        try:
            found = [regions for _, regions in RegionHdf5(file).read(IMAGES)]
        except BenchError as error:
            told += str(file) in str(error)
            continue
        assert all(isinstance(regions, str | RawRegions) for regions in found)
        named += any(isinstance(regions, str) for regions in found)
    assert told > 5
    assert named > 5


WORDS = Vocabulary(("dog", "cat")).content()
HUB = WORDS | {"format": "captionbench pretrained tokenizer 1", "tokenizer": '{"model": 5}'}
PIECES = SubwordVocabulary(("a", "b", "ab"), merges=(("a", "b"),)).content()


@pytest.mark.parametrize(
    "content",
    [
        5,
        WORDS | {"format": []},
        WORDS | {"words": ["dog", 5]},
        WORDS | {"words": ["dog", "dog"]},
        WORDS | {"words": ["dog", "\ud800"]},
        WORDS | {"specials": {"pad": 0, "bos": 1, "eos": 2}},
        WORDS | {"specials": WORDS["specials"] | {"pad": 1}},
        WORDS | {"specials": WORDS["specials"] | {"pad": 10**400}},
        WORDS | {"preparation": "x" * 9999},
        HUB,
        PIECES | {"merges": [["a"]]},
        PIECES | {"merges": [["b", "a"]]},
    ],
)
def test_vocabularies_of_odd_types_are_refused(tmp_path: Path, content: Any) -> None:
    file = tmp_path / "vocabulary.json"
    file.write_text(json.dumps(content))
    with pytest.raises(BenchError) as caught:
        load_vocabulary(file)
    assert str(file) in str(caught.value)
    assert len(str(caught.value)) < 800


def _saved(content: Any, **how: Any) -> bytes:
    file = io.BytesIO()
    torch.save(content, file, **how)
    return file.getvalue()


@pytest.mark.filterwarnings("ignore")  # of the unpickler, about what the damaged bytes ask for
def test_damaged_bytes_of_weights_are_sentences(tmp_path: Path) -> None:
    draw = random.Random(0)
    weights = {"a.b": torch.zeros(3), "c": torch.ones(2, 2)}
    whole = [_saved(weights), _saved(weights, _use_new_zipfile_serialization=False), b"e" * 60]
    file, refused = tmp_path / "weights.pth", 0
    for turn in range(150):
        content = bytearray(whole[turn % 3])
        for _ in range(draw.randrange(1, 6)):
            content[draw.randrange(len(content))] = draw.randrange(256)
        file.write_bytes(content)
        try:
            read_checkpoint(file)
        except ZooError as error:
            refused += str(file) in str(error)
    assert refused > 50


@pytest.mark.parametrize("content", [{1: torch.zeros(2)}, [torch.zeros(2)], {"a": 1}, {}, torch.zeros(3), 5, None])
def test_files_without_named_tensors_are_refused(tmp_path: Path, content: Any) -> None:
    (tmp_path / "weights.pth").write_bytes(_saved(content))
    with pytest.raises(ZooError, match="not a state dict"):
        read_checkpoint(tmp_path / "weights.pth")


def test_tensors_of_too_few_axes_name_themselves() -> None:
    names = ("vocab_linear.weight", "input_linear.weight", "decoders.0.ff.linear_1.weight", "pos_encoder.weight")
    state = {name: torch.zeros(3) for name in (*names, "decoders.0.dyn_exp.query_exp_vectors.weight")}
    with pytest.raises(ZooError, match=r"input_linear\.weight .*\(3,\)"):
        read_sizes("expansionnet_v2", state)


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        ("resnet18.a1_in2k", "tagged 'a1_in2k'", "resnet18.a1_in1k"),
        ("resnet18.", "tagged ''", "resnet18.a2_in1k"),
        ("resnet18.tag." + "x" * 500, "...", "resnet18"),
        ("resnet81", "unknown backbone 'resnet81'", "resnet18"),
    ],
)
def test_unknown_backbones_name_the_nearest(name: str, said: str, hint: str) -> None:
    with pytest.raises(BenchError) as caught:
        open_backbone(FeatureConfig(backbone=name, weights="random"))
    assert said in str(caught.value)
    assert len(str(caught.value)) < 250
    assert hint in (caught.value.hint or "")


TOO_LARGE = 2**63


def test_models_of_which_nothing_was_measured_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolated, "run_isolated", lambda job: (isolated.measure(job), {}))  # not in a new process
    sizes = ["--vocab-size", "5", "--beam", "6", "--batch", "1", "--repeats", "2", "--device", "cpu"]
    result = bench("cost", "measure", "--models", "blind", *sizes)
    assert result.exit_code == 1
    assert "ZooError: beam_size" in result.output


def _write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def _karpathy(**changes: Any) -> dict[str, Any]:
    image = {"imgid": 1, "filename": "a.png", "split": "train", "sentences": [{"raw": "A dog."}], **changes}
    return {"images": [image]}


@pytest.mark.parametrize("number", [TOO_LARGE, -TOO_LARGE - 1, 10**400])
def test_ids_beyond_64_bits_are_named(tmp_path: Path, number: int) -> None:
    said = "whole number of 64 bits"
    with pytest.raises(BenchError, match=said):
        open_dataset(str(_write(tmp_path / "karpathy.json", _karpathy(imgid=number))), cache_dir=tmp_path)
    coco = {"images": [{"id": number}], "annotations": [{"image_id": number, "caption": "a dog"}]}
    with pytest.raises(BenchError, match=said):
        read_references(_write(tmp_path / "coco.json", coco))
    predictions = [{"image_id": number, "caption": "a dog"}, {"image_id": 1, "caption": "a cat"}]
    found = read_predictions(_write(tmp_path / "predictions.json", predictions))
    assert found.captions == {1: "a cat"}
    assert found.problems == {f"without a {said} or a file name as their image": ["entry 0"]}
