"""The pieces of the LSTM captioners, and what only they can be told."""

import pytest
import torch

import zoo
from zoo.layers.additive_attention import AdditiveAttention
from zoo.layers.lstm import LSTMCell
from zoo.models.adaptive_attention import SentinelAttention

close = {"atol": 1e-10, "rtol": 1e-10}
RECURRENT = ["adaptive_attention", "att2all", "att2in", "show_attend_tell", "show_tell", "updown"]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def attend(attention, queries, regions, mask):
    keys, barrier = attention.project(regions, mask)
    return attention(queries, keys, regions, barrier)


def test_attention_equals_softmax_masked_and_renormalised():
    attention = AdditiveAttention(6, 5, 4).double()
    queries, regions = torch.randn(4, 6).double(), torch.randn(2, 7, 5).double()
    mask = torch.arange(7) < torch.tensor([[7], [4]])
    hidden = torch.tanh(attention.key(regions)[:, None] + attention.query(queries).view(2, 2, 1, 4))
    weights = attention.score(hidden)[..., 0].softmax(-1) * mask[:, None]
    expected = (weights / weights.sum(-1, keepdim=True)) @ regions
    torch.testing.assert_close(attend(attention, queries, regions, mask), expected.flatten(0, 1), **close)


def test_attention_survives_padding_that_outscores_all_regions():
    attention = AdditiveAttention(6, 5, 4)
    torch.nn.init.constant_(attention.score.weight, 1e3)
    queries, regions = torch.randn(4, 6), torch.randn(2, 7, 5)
    mask = torch.arange(7) < torch.tensor([[3], [4]])
    padded = torch.where(mask[..., None], regions, 1e3 * attention.key.weight.sum(0).sign())
    found = attend(attention, queries, padded, mask)
    assert torch.equal(found, attend(attention, queries, regions * mask[..., None], mask))
    nothing = attend(attention, queries, regions, torch.zeros_like(mask))
    torch.testing.assert_close(nothing, regions.mean(1).repeat_interleave(2, 0))


@torch.no_grad()
def test_an_image_without_regions_is_seen_as_the_sentinel_alone():
    attention = SentinelAttention(6, 4, 0.5).double().eval()
    state, sentinel, regions = (torch.randn(*shape).double() for shape in ((4, 6), (4, 6), (2, 7, 6)))
    keys, barrier = attention.project(regions, torch.zeros(2, 7, dtype=torch.bool))
    found = attention(state, sentinel, keys, regions, barrier)
    expected = attention.sentinel(sentinel).relu() + attention.state(state).tanh()
    torch.testing.assert_close(found, expected, **close)


def test_an_lstm_is_torchs_with_the_candidate_last():
    ours, theirs = LSTMCell(3, 4, 4).double(), torch.nn.LSTMCell(3, 4).double()
    order = torch.cat([torch.arange(4) + 4 * block for block in (0, 1, 3, 2)])
    for own, its in ((ours.input, "ih"), (ours.recurrent, "hh")):
        own.weight.data.copy_(getattr(theirs, f"weight_{its}")[order])
        own.bias.data.copy_(getattr(theirs, f"bias_{its}")[order])
    x, hidden, cell = torch.randn(2, 3).double(), torch.randn(2, 4).double(), torch.randn(2, 4).double()
    for found, expected in zip(ours(ours.project(x), hidden, cell), theirs(x, (hidden, cell)), strict=True):
        torch.testing.assert_close(found, expected, **close)


@torch.no_grad()
def test_layers_above_the_first_step_as_they_are_taught():
    model = zoo.create_model("show_tell", vocab_size=9, visual_dim=5, d_model=8, n_layers=3).double().eval()
    memory, tokens = model.encode(zoo.Visual(torch.randn(2, 1, 5))), torch.randint(0, 9, (4, 6))
    state, logits = model.start(memory).expand(2), []
    for position in range(6):
        step, state = model.step(tokens[:, position], state)
        logits.append(step)
    torch.testing.assert_close(torch.stack(logits, 1), model.decode(memory, tokens), **close)


@torch.no_grad()
@pytest.mark.parametrize("name", RECURRENT)
def test_a_word_costs_the_same_wherever_it_stands(name):
    """The state of a row is a few vectors, and the image's tensors are those of the encoder, shared by all rows."""
    model = zoo.create_model(name, vocab_size=9, visual_dim=5, **zoo.model_card(name).tiny).eval()
    memory = model.encode(zoo.Visual(torch.randn(2, 1 if model.visual.kind == "pooled" else 4, 5)))
    first = model.start(memory).expand(3)
    state = first
    for _ in range(5):
        _, state = model.step(torch.randint(0, 9, (6,)), state)
    assert {key: row.shape for key, row in state.rows.items()} == {key: row.shape for key, row in first.rows.items()}
    assert all(part is memory.extra[key] for key, part in state.images.items())


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("att2in", {"attended": "some"}, "attended cannot be 'some'"),
        ("show_tell", {"cell": "gru"}, "cell cannot be 'gru'"),
        ("show_tell", {"n_layers": 0}, "n_layers must be at least 1"),
    ],
)
def test_impossible_arguments_are_refused(name, wrong, message):
    with pytest.raises(zoo.ZooError, match=message):
        zoo.create_model(name, vocab_size=9, visual_dim=5, **wrong)


@pytest.mark.parametrize("name", RECURRENT)
def test_a_model_without_features_is_told(name):
    model = zoo.create_model(name, vocab_size=9, visual_dim=5, **zoo.model_card(name).tiny)
    with pytest.raises(zoo.ZooError, match="needs visual features"):
        model.encode(zoo.Visual(pixels=torch.rand(1, 3, 8, 8)))
