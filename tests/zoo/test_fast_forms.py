"""The fast forms of the expansions equal the plain ones, gradients included, at sizes where each is taken."""

import pytest
import torch

import zoo
from zoo.layers.dynamic_expansion import DynamicExpansion
from zoo.layers.static_expansion import StaticExpansion

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
BARELY = 1e-30  # a dropout that drops nothing, but forbids to reassociate


def random_weights(layer, dtype):
    torch.manual_seed(0)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return layer.to(dtype)


def run(layer, x, mask, weight):
    layer.zero_grad()
    x = x.clone().requires_grad_()
    y = layer(x, mask)
    (y * weight).sum().backward()
    return [y, x.grad, *(parameter.grad for parameter in layer.parameters())]


def plainly(layer, x, mask):
    """Static expansion word for word: every key projected, every expanded vector built, with the bias in it."""
    scores = layer.key(x) @ layer.queries.T / x.shape[-1] ** 0.5
    streams = []
    for sign, value in ((1, layer.streams.value_a), (-1, layer.streams.value_b)):
        forward = (sign * scores).relu() * mask[..., None]
        expand = (forward / (forward.sum(1, keepdim=True) + 1e-9)).transpose(1, 2)
        groups = [
            group / (group.sum(-1, keepdim=True) + 1e-9) for group in (sign * scores).relu().split(layer.lengths, -1)
        ]
        streams.append(torch.cat(groups, -1) @ (expand @ value(x) + layer.biases) / len(layer.lengths))
    gate = layer.streams.selector(x).sigmoid()
    return gate * streams[0] + (1 - gate) * streams[1]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    ("images", "length", "folded", "reassociated"),
    [(1, 3, False, True), (8, 3, True, True), (1, 10, False, False), (4, 10, True, False)],
)
def test_static_expansion(dtype, images, length, folded, reassociated):
    layer = random_weights(StaticExpansion(8, (4, 8, 3), BARELY), dtype)
    x, weight = torch.randn(2, images, length, 8, dtype=dtype)
    mask = torch.arange(length) < (length - torch.arange(images) % length)[:, None]
    assert (images * length > 15) == folded
    assert layer.eval()._reassociates(x) == reassociated
    fast = run(layer, x, mask, weight)
    torch.testing.assert_close(fast[0], plainly(layer, x, mask), atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    assert not layer.train()._reassociates(x)
    for quick, slow in zip(fast, run(layer, x, mask, weight), strict=True):
        torch.testing.assert_close(quick, slow, atol=10 * TOLERANCE[dtype], rtol=10 * TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("causal", [True, False])
def test_dynamic_expansion(dtype, causal):
    layer = random_weights(DynamicExpansion(8, 3, BARELY, causal), dtype)
    x, weight = torch.randn(2, 4, 6, 8, dtype=dtype)
    mask = torch.arange(6) < (6 - torch.arange(4))[:, None]
    fast, slow = run(layer.eval(), x, mask, weight), run(layer.train(), x, mask, weight)
    for quick, plain in zip(fast, slow, strict=True):
        torch.testing.assert_close(quick, plain, atol=10 * TOLERANCE[dtype], rtol=10 * TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_gradients_of_stepping_are_those_of_teacher_forcing(dtype):
    torch.manual_seed(0)
    card = zoo.model_card("expansionnet_v2")
    model = zoo.create_model(card.name, vocab_size=11, visual_dim=6, **card.tiny).to(dtype).eval()
    visual, tokens = zoo.Visual(torch.rand(2, 5, 6)), torch.randint(0, 11, (4, 7))

    def gradients(logits):
        model.zero_grad()
        logits.square().mean().backward()
        return [parameter.grad for parameter in model.parameters()]

    state, steps = model.start(model.encode(visual)).expand(2), []
    for position in range(7):
        logits, state = model.step(tokens[:, position], state)
        steps.append(logits)
    stepped = gradients(torch.stack(steps, 1))
    for quick, plain in zip(stepped, gradients(model(visual, tokens)), strict=True):
        torch.testing.assert_close(quick, plain, atol=TOLERANCE[dtype], rtol=10 * TOLERANCE[dtype])


def test_a_change_of_weights_is_seen_at_once():
    """Nothing folded outlives the batch, even if a weight changes behind autograd's back."""
    layer = random_weights(StaticExpansion(8, (4, 3), 0.0), torch.float64).eval()
    x = torch.randn(4, 5, 8, dtype=torch.float64)
    before = layer(x)
    layer.key.weight.data.mul_(-1)
    layer.queries.data.mul_(-1)
    layer.key.bias.data.mul_(-1)
    torch.testing.assert_close(layer(x), before)
    layer.key.weight.data.mul_(-1)
    assert not torch.allclose(layer(x), before)
