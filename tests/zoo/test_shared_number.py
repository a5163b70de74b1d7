"""Words of vocabularies whose number 0 is begin, end and padding: the captions stay the authors' with numbers apart."""

import pytest
import torch

import zoo
from zoo.decoding import beam_search, greedy
from zoo.models.puret import square_cells
from zoo.weights import from_official
from zoo.weights.shared_number import FAMILIES, UNKNOWN, separate_specials

close = {"atol": 1e-10, "rtol": 1e-10}
PAD, BOS, EOS, UNK = range(4)


@pytest.fixture(params=sorted(FAMILIES))
def name(request):
    return request.param


@pytest.fixture
def numbers(official, name):
    return official(name)


def weights(numbers):
    return numbers.group("param/") | numbers.group("buffer/")


def authors_words(numbers, unknown=7):
    words = [f"w{at}" for at in range(1, numbers.size("vocab_size") + 1)]
    return [UNKNOWN if at == unknown else word for at, word in enumerate(words, 1)]


def look(numbers):
    features, mask = numbers["in/att_feats"], numbers["in/att_mask"].bool()
    side = int(features.shape[1] ** 0.5)
    row, column = square_cells(side * side, torch.device("cpu")).double().unbind(-1)
    boxes = torch.stack((column, row, column + 1, row + 1), -1) / side
    fits = side * side == features.shape[1]
    return zoo.Visual(features, mask, boxes.expand(len(features), -1, -1) if fits else None)


def separated(numbers, name, words):
    """The model, and the authors' number of each of its numbers."""
    state, rest = separate_specials(name, weights(numbers), words)
    theirs = torch.tensor([0, 0, 0, words.index(UNKNOWN) + 1, *(words.index(word) + 1 for word in rest)])
    return from_official(name, state).eval(), theirs


def test_log_probabilities_are_the_authors(numbers, name):
    words = authors_words(numbers)
    model, theirs = separated(numbers, name, words)
    ours = torch.empty(len(words) + 1, dtype=torch.long)
    ours[theirs[3:]] = torch.arange(3, len(theirs))
    ours[0] = PAD
    tokens = ours[numbers["in/input_seq"]]
    tokens[:, 0] = BOS
    log_probs = model(look(numbers), tokens).log_softmax(-1)
    spoken = numbers["in/target_seq"] >= 0
    torch.testing.assert_close(log_probs[spoken][:, EOS:], numbers["out/logprobs"][spoken][:, theirs[EOS:]], **close)
    assert torch.equal(log_probs[spoken][:, :EOS].exp(), torch.zeros(int(spoken.sum()), 2, dtype=torch.float64))


@torch.no_grad()
@pytest.mark.parametrize("search", ["greedy", "beam3"])
def test_captions_are_the_authors(numbers, name, search):
    model, theirs = separated(numbers, name, authors_words(numbers))
    expected = numbers[f"out/{search}_seq"]
    settings = {"max_len": expected.shape[1], "bos": BOS, "eos": EOS}
    memory = model.encode(look(numbers))
    found = (
        greedy(model, memory, **settings)
        if search == "greedy"
        else beam_search(model, memory, beam_size=3, length_penalty=0.0, **settings)
    )
    assert torch.equal(theirs[found.tokens[:, 0]], expected)
    assert (found.tokens[:, 0] != BOS).all()


def test_a_vocabulary_without_an_unknown_word_never_speaks_it(numbers, name):
    words = authors_words(numbers, unknown=None)
    state, rest = separate_specials(name, weights(numbers), words)
    assert rest == words
    log_probs = from_official(name, state).eval()(look(numbers), torch.tensor([[BOS]] * 3)).log_softmax(-1)
    assert not log_probs[..., [PAD, BOS, UNK]].exp().any()
    torch.testing.assert_close(
        log_probs[:, 0, [EOS, *range(4, 4 + len(words))]], numbers["out/logprobs"][:, 0], **close
    )


def test_the_authors_tensors_stay_as_they_are(numbers, name):
    state = {f"module.{key}": value for key, value in weights(numbers).items()}
    before = {key: value.clone() for key, value in state.items()}
    separate_specials(name, state, authors_words(numbers))
    assert all(torch.equal(value, before[key]) for key, value in state.items())


def test_a_vocabulary_of_another_checkpoint_is_named(numbers, name):
    with pytest.raises(zoo.ZooError, match="12 words after the number 0, but the vocabulary 11"):
        separate_specials(name, weights(numbers), authors_words(numbers)[:-1])
    with pytest.raises(zoo.ZooError, match=f"not a state dict of {name}"):
        separate_specials(name, {}, authors_words(numbers))
