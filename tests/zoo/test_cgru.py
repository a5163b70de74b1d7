"""The conditional GRU captioner: the paper's equations written out plainly."""

import pytest
import torch

import zoo

IMAGES, CAPTIONS, LENGTH, CELLS, CHANNELS, VOCAB = 2, 3, 6, 5, 7, 19


def gru(x, h, cell):
    """Equations 6 and 7, gate by gate, with torch's two bias vectors."""
    width = h.shape[-1]
    w = {gate: cell.weight_ih[at * width : (at + 1) * width] for at, gate in enumerate("rzn")}
    u = {gate: cell.weight_hh[at * width : (at + 1) * width] for at, gate in enumerate("rzn")}
    b = {gate: cell.bias_ih[at * width : (at + 1) * width] for at, gate in enumerate("rzn")}
    d = {gate: cell.bias_hh[at * width : (at + 1) * width] for at, gate in enumerate("rzn")}
    r = torch.sigmoid(w["r"] @ x + b["r"] + u["r"] @ h + d["r"])
    z = torch.sigmoid(w["z"] @ x + b["z"] + u["z"] @ h + d["z"])
    n = torch.tanh(w["n"] @ x + b["n"] + r * (u["n"] @ h + d["n"]))
    return (1 - z) * n + z * h


def gate(model, state, features, _):
    return state * torch.tanh(model.glance.image.weight @ features[0])


def attention(model, state, features, mask):
    look, width = model.glance, len(state)
    heads = []
    for head in range(look.n_heads):
        rows = slice(head * width, (head + 1) * width)
        query = look.query.weight[rows] @ state + look.query.bias[rows]
        keys = [look.keys.weight[rows] @ cell + look.keys.bias[rows] for cell in features[mask]]
        weights = torch.stack([query @ key / width**0.5 for key in keys]).softmax(0)
        heads.append(sum(weight * key for weight, key in zip(weights, keys, strict=True)))
    return look.output.weight @ torch.cat(heads) + look.output.bias


@pytest.mark.parametrize(("look", "seen"), [("gate", gate), ("attention", attention)])
@pytest.mark.parametrize("bottleneck", ["gru", "linear"])
@torch.no_grad()
def test_logits_and_states_are_the_papers_equations(look, seen, bottleneck):
    torch.manual_seed(0)
    model = zoo.create_model(
        "cgru", vocab_size=VOCAB, visual_dim=CHANNELS, d_model=8, look=look, bottleneck=bottleneck
    ).double()
    for parameter in model.parameters():  # biases included, some of which start at zero
        parameter.normal_(std=0.5)
    model.eval()
    cells = 1 if look == "gate" else CELLS
    features = torch.randn(IMAGES, cells, CHANNELS, dtype=torch.double)
    mask = torch.arange(cells) < torch.tensor([cells, max(cells - 2, 1)])[:, None]
    tokens = torch.randint(VOCAB, (IMAGES * CAPTIONS, LENGTH))
    logits, states = model.decode_with_states(model.encode(zoo.Visual(features, mask)), tokens)

    for row, words in enumerate(tokens):
        h = torch.zeros(8, dtype=torch.double)
        for t, word in enumerate(words):
            y = model.embedding.weight[word]
            between = gru(model.input.weight @ y, h, model.first)
            c = seen(model, between, features[row // CAPTIONS], mask[row // CAPTIONS])
            h = gru(c, between, model.second)
            b = gru(torch.cat((y, between, c)), h, model.bottleneck) if bottleneck == "gru" else torch.cat((y, h, c))
            narrow = model.projection.weight @ b + model.projection.bias
            expected = model.embedding.weight @ narrow + model.bias
            torch.testing.assert_close(logits[row, t], expected, atol=1e-10, rtol=1e-10)
            torch.testing.assert_close(states[row, t], h, atol=1e-10, rtol=1e-10)


def test_dropout_falls_on_the_bottleneck():
    torch.manual_seed(0)
    model = zoo.create_model("cgru", vocab_size=VOCAB, visual_dim=CHANNELS, d_model=8)
    assert model.output_dropout.p == 0.5
    memory = model.encode(zoo.Visual(torch.randn(1, 1, CHANNELS)))
    tokens = torch.randint(VOCAB, (1, LENGTH))
    trained, states = model.train().decode_with_states(memory, tokens)
    whole, same = model.eval().decode_with_states(memory, tokens)
    assert torch.equal(states, same)
    assert not torch.equal(trained, whole)
