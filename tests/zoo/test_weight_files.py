"""Released files are read without running what lies in them, and what they lack is told."""

import collections
import json
import math
import pickle

import pytest
import torch

from zoo import ZooError
from zoo.weights import read_checkpoint, read_vocabulary

WORDS = ["\n", "a", "ball", "EOS", "PAD", "SOS", "UNK"]
INDICES = {word: index for index, word in enumerate(WORDS)}


class Runs:
    def __reduce__(self):
        return (print, ("this must never be printed",))


def test_a_checkpoint_keeps_the_weights_alone(tmp_path):
    weight = torch.nn.Parameter(torch.ones(2, 3))
    optimiser = torch.optim.Adam([weight])
    weight.sum().backward()
    optimiser.step()
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda _: 1.0)
    content = {
        "model_state_dict": collections.OrderedDict(weight=weight.detach()),
        "optimizer_state_dict": optimiser.state_dict(),
        "scheduler_state_dict": scheduler.state_dict(),
        "data_loader_state_dict": {"epoch": 3, "order": [2, 0, 1]},
    }
    torch.save(content, tmp_path / "checkpoint.pth")
    found = read_checkpoint(tmp_path / "checkpoint.pth")
    assert list(found) == ["weight"]
    assert torch.equal(found["weight"], weight)


@pytest.mark.parametrize("place", ["model_state_dict", "state_dict", None])
def test_weights_stand_alone_or_under_either_usual_name(tmp_path, place):
    weights = {"weight": torch.ones(2)}
    torch.save(weights if place is None else {place: weights, "epoch": 3}, tmp_path / "model.pth")
    assert list(read_checkpoint(tmp_path / "model.pth")) == ["weight"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"weight": torch.ones(1), "epoch": 3}, "its keys are epoch, weight"),
        ({}, "is not a state dict"),
        ({"model_state_dict": {"weight": 3.0}}, "no tensors under 'model_state_dict'"),
        ([torch.ones(1)], "no tensors under 'model_state_dict'"),
        ({"first": torch.ones(2), "second": torch.tensor([1.0, math.nan])}, r"other\.pth: the tensor second holds NaN"),
        ({"model_state_dict": {}, "more": Runs()}, "cannot be read"),
    ],
)
def test_other_contents_are_refused(tmp_path, capsys, content, message):
    torch.save(content, tmp_path / "other.pth")
    with pytest.raises(ZooError, match=message):
        read_checkpoint(tmp_path / "other.pth")
    assert not capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"no torch file", b"PK\x03\x04 half an archive"])
def test_other_files_are_refused(tmp_path, content):
    (tmp_path / "other.pth").write_bytes(content)
    with pytest.raises(ZooError, match=r"other\.pth cannot be read") as caught:
        read_checkpoint(tmp_path / "other.pth")
    assert "weights_only" not in str(caught.value), "torch's advice to run what lies in the file"
    with pytest.raises(ZooError, match="there is no checkpoint"):
        read_checkpoint(tmp_path / "none.pth")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "content", [WORDS, INDICES, {"word2idx_dict": INDICES, "idx2word_list": WORDS}, {"vocabulary": WORDS, "size": 7}]
)
def test_a_vocabulary_comes_in_the_order_of_its_indices(tmp_path, content, protocol):
    (tmp_path / "words").write_bytes(pickle.dumps(content, protocol))
    (tmp_path / "words.json").write_text(json.dumps(content))
    assert read_vocabulary(tmp_path / "words") == WORDS
    assert read_vocabulary(tmp_path / "words.json") == WORDS


def test_a_vocabulary_of_text_has_a_word_a_line(tmp_path):
    (tmp_path / "words.txt").write_bytes("a \r\nbäll\nUNK\n\n".encode())
    assert read_vocabulary(tmp_path / "words.txt") == ["a", "bäll", "UNK"]
    (tmp_path / "words.txt").write_text("a\nball\na\n")
    with pytest.raises(ZooError, match="holds neither a list of words"):
        read_vocabulary(tmp_path / "words.txt")


def endless():
    content = [*WORDS]
    content.append(content)
    return content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (Runs(), "it asks for builtins.print"),
        ({"words": WORDS, "more": Runs()}, "it asks for builtins.print"),
        (collections.OrderedDict(INDICES), "it asks for collections.OrderedDict"),
        ({"words": WORDS, "share": 0.5}, "it holds a float"),
        ({"words": WORDS, "more": [(1, 2)]}, "it holds a tuple"),
        ({"words": WORDS, "flag": True}, "it holds a bool"),
        ({"words": 3}, "neither a list of words"),
        ({"a": 0, "b": 2}, "neither a list of words"),
        ({"a": 0, "b": 0}, "neither a list of words"),
        (["a", "a"], "neither a list of words"),
        ([], "neither a list of words"),
        (endless(), "neither a list of words"),
        ({"one": WORDS, "two": WORDS[::-1]}, "two orders of words"),
    ],
)
def test_vocabularies_of_anything_else_are_refused(tmp_path, capsys, content, message):
    (tmp_path / "words").write_bytes(pickle.dumps(content))
    with pytest.raises(ZooError, match=message):
        read_vocabulary(tmp_path / "words")
    assert not capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.json", b"{"), ("a.json", b"\xff"), ("a.txt", b"\xff"), ("a.pkl", b""), ("a.pkl", b"\x80\x04]q")],
)
def test_broken_vocabularies_are_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ZooError, match="cannot be read"):
        read_vocabulary(tmp_path / name)
    with pytest.raises(ZooError, match="there is no vocabulary"):
        read_vocabulary(tmp_path / "none")
