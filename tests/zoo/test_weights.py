"""Released weights: read without running what lies in their files; what does not fit is named, all of it at once."""

import collections
import json
import math
import pickle

import pytest
import torch

import zoo
from tests.zoo.test_laws import close
from tests.zoo.test_parity import regions, windows
from zoo import ZooError
from zoo.checkpoints import read_checkpoint, read_vocabulary
from zoo.converter import UNKNOWN, converter_of, convertible_families, from_official

PAD, BOS, EOS, UNK = range(4)
SHARED = ["puret", "x_lan", "x_transformer"]
SIZES = {"n_heads": 4, "static_lengths": (2, 4, 3)}


@pytest.fixture
def weights(official):
    return official("expansionnet_model").group("param/")


def test_every_misfit_is_named(weights):
    weights["decoders.0.norm_2.weight"] = torch.ones(5)
    weights["mystery.weight"] = torch.ones(1)
    del weights["enc_reduce_norm.bias"]
    with pytest.raises(ZooError) as caught:
        from_official("expansionnet_v2", weights, **SIZES)
    message = str(caught.value)
    assert "decoder_layers.0.cross_norm.weight: shape (5,)" in message
    assert "mystery.weight: unknown" in message
    assert "encoder_output.norm.bias: not in" in message


def test_half_precision_is_widened(weights):
    half = {name: value.half() for name, value in weights.items()}
    assert next(from_official("expansionnet_v2", half, **SIZES).parameters()).dtype == torch.float32


def test_other_group_lengths_are_told_by_shape(weights):
    with pytest.raises(ZooError, match=r"mixer\.queries: shape \(9, 32\)") as caught:
        from_official("expansionnet_v2", weights, n_heads=4)
    assert "static_lengths" in caught.value.hint


@pytest.mark.parametrize("name", convertible_families())
def test_another_state_dict_is_told(name):
    with pytest.raises(ZooError, match="not a state dict of") as caught:
        from_official(name, {"model_state_dict": torch.ones(1)})
    assert "model_state_dict" in caught.value.hint


def test_weights_of_another_variant_are_named(official):
    with pytest.raises(ZooError, match=r"mixer\.query\.weight: .*aoanet/no-ref"):
        from_official("aoanet/no-refiner", official("aoanet").group("param/"), n_heads=4)
    numbers = official("grit")
    shared = {key: tensor for key, tensor in numbers.group("param/").items() if key.startswith("grid_net.")}
    with pytest.raises(ZooError) as caught:
        from_official("grit", shared | numbers.group("param_sequential/"))
    assert caught.value.hint == "choose grit/sequential"
    with pytest.raises(ZooError, match="not a state dict of X-Transformer"):
        from_official("x_transformer", official("x_lan").group("param/"))


def test_an_lstm_that_is_not_whole_is_named(official):
    weights = official("updown").group("param/")
    del weights["core.lang_lstm.bias_hh"]
    with pytest.raises(ZooError, match=r"core\.lang_lstm\.bias_hh missing"):
        from_official("updown", weights)


def test_a_family_without_released_weights_is_told(weights):
    with pytest.raises(ZooError, match="'blind'") as caught:
        from_official("blind", weights)
    assert "expansionnet_v2" in caught.value.hint


WORDS = ["\n", "a", "ball", "EOS", "PAD", "SOS", "UNK"]
INDICES = {word: index for index, word in enumerate(WORDS)}


class Runs:
    def __reduce__(self):
        return (eval, ("print('this must never be printed')",))


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
        (Runs(), "it imports builtins.eval"),
        ({"words": WORDS, "more": Runs()}, "it imports builtins.eval"),
        (collections.OrderedDict(INDICES), "it imports collections.OrderedDict"),
        ({"words": WORDS, "share": 0.5}, "it holds a float"),
        ({"words": WORDS, "more": [(1, 2)]}, "it holds a tuple"),
        ({"words": WORDS, "flag": True}, "it holds a bool"),
        ({"words": 3}, "neither a list of words"),
        ({"a": 0, "b": 2}, "neither a list of words"),
        ({"a": 0, "b": 0}, "neither a list of words"),
        (["a", "a"], "neither a list of words"),
        ([], "neither a list of words"),
        (endless(), "neither a list of words"),
        ({"one": WORDS, "two": WORDS[::-1]}, "two different orders of words"),
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


def weights_of(numbers):
    return numbers.group("param/") | numbers.group("buffer/")


def look(numbers, name, model):
    return windows(numbers, model) if name == "puret" else regions(numbers, model)


def authors_words(numbers, unknown=7):
    words = [f"w{at}" for at in range(1, numbers.size("vocab_size") + 1)]
    return [UNKNOWN if at == unknown else word for at, word in enumerate(words, 1)]


def separated(numbers, name, words):
    """The model, and the authors' number of each of its numbers."""
    state, rest = converter_of(name).separate_specials(weights_of(numbers), words)
    theirs = torch.tensor([0, 0, 0, words.index(UNKNOWN) + 1, *(words.index(word) + 1 for word in rest)])
    return from_official(name, state).eval(), theirs


@pytest.mark.parametrize("name", SHARED)
def test_log_probabilities_are_the_authors(official, name):
    numbers = official(name)
    words = authors_words(numbers)
    model, theirs = separated(numbers, name, words)
    ours = torch.empty(len(words) + 1, dtype=torch.long)
    ours[theirs[3:]] = torch.arange(3, len(theirs))
    ours[0] = PAD
    tokens = ours[numbers["in/input_seq"]]
    tokens[:, 0] = BOS
    log_probs = model(look(numbers, name, model), tokens).log_softmax(-1)
    spoken = numbers["in/target_seq"] >= 0
    close(log_probs[spoken][:, EOS:], numbers["out/logprobs"][spoken][:, theirs[EOS:]])
    assert torch.equal(log_probs[spoken][:, :EOS].exp(), torch.zeros(int(spoken.sum()), 2, dtype=torch.float64))


@pytest.mark.parametrize("name", SHARED)
def test_a_vocabulary_without_an_unknown_word_never_speaks_it(official, name):
    numbers = official(name)
    words = authors_words(numbers, unknown=None)
    state, rest = converter_of(name).separate_specials(weights_of(numbers), words)
    assert rest == words
    model = from_official(name, state).eval()
    log_probs = model(look(numbers, name, model), torch.tensor([[BOS]] * 3)).log_softmax(-1)
    assert not log_probs[..., [PAD, BOS, UNK]].exp().any()
    close(log_probs[:, 0, [EOS, *range(4, 4 + len(words))]], numbers["out/logprobs"][:, 0])


@pytest.mark.parametrize("name", SHARED)
def test_a_vocabulary_of_another_checkpoint_is_named(official, name):
    numbers = official(name)
    with pytest.raises(zoo.ZooError, match=r"12 words .* 11"):
        converter_of(name).separate_specials(weights_of(numbers), authors_words(numbers)[:-1])
    with pytest.raises(zoo.ZooError, match="not a state dict of"):
        converter_of(name).separate_specials({}, authors_words(numbers))
