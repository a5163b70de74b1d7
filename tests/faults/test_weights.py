"""Files of weights that hold something else, and backbones that do not exist: sentences with the nearest names."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.data.backbones.backbone import open_backbone
from harness.data.backbones.timm_backbone import _read
from harness.utils.errors import BenchError
from zoo.errors import ZooError
from zoo.weights import read_checkpoint, read_sizes

READERS = (_read, read_checkpoint)


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
        for read in READERS:
            try:
                read(file)
            except (BenchError, ZooError) as error:
                refused += str(file) in str(error)
    assert refused > 100


@pytest.mark.parametrize("content", [{1: torch.zeros(2)}, [torch.zeros(2)], {"a": 1}, {}, torch.zeros(3), 5, None])
def test_files_without_named_tensors_are_refused(tmp_path: Path, content: Any) -> None:
    (tmp_path / "weights.pth").write_bytes(_saved(content))
    with pytest.raises(ZooError, match="not a state dict"):
        read_checkpoint(tmp_path / "weights.pth")
    if content != {}:  # no tensors at all: what is missing is named when they are loaded
        with pytest.raises(BenchError, match="no state dict"):
            _read(tmp_path / "weights.pth")


def test_tensors_of_too_few_axes_name_themselves() -> None:
    names = ("vocab_linear.weight", "input_linear.weight", "decoders.0.ff.linear_1.weight", "pos_encoder.weight")
    state = {name: torch.zeros(3) for name in (*names, "decoders.0.dyn_exp.query_exp_vectors.weight")}
    with pytest.raises(ZooError, match=r"ExpansionNet: input_linear\.weight has the shape \(3,\)"):
        read_sizes("expansionnet_v2", state)


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        ("resnet18.a1_in2k", "backbone resnet18 has no pretrained weights tagged 'a1_in2k'", "resnet18.a1_in1k"),
        ("resnet18.", "tagged ''", "resnet18.a2_in1k"),
        ("resnet18.tag." + "x" * 500, "...", "resnet18"),
        ("resnet81", "unknown backbone 'resnet81'", "resnet18"),
    ],
)
def test_unknown_backbones_name_the_nearest(name: str, said: str, hint: str) -> None:
    with pytest.raises(BenchError) as caught:
        open_backbone(name, weights="random")
    assert said in str(caught.value)
    assert len(str(caught.value)) < 250
    assert hint in (caught.value.hint or "")
