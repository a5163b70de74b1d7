"""The expansions equal the authors' layers; the products that only evaluation can reorder give the same."""

import pytest
import torch

from zoo.layers.expansion import DynamicExpansion, StaticExpansion
from zoo.models.expansionnet import CONVERTER

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
BARELY = 1e-30  # a dropout that drops nothing, but forbids to reorder products


def random_weights(layer, dtype):
    torch.manual_seed(0)
    for parameter in layer.to(dtype).parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return layer


def run(layer, x, mask, weight):
    layer.zero_grad()
    x = x.clone().requires_grad_()
    y = layer(x, mask)
    (y * weight).sum().backward()
    return [y, x.grad, *(parameter.grad for parameter in layer.parameters())]


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("static_expansion", lambda numbers: StaticExpansion(32, numbers.size("groups"), BARELY)),
        ("dynamic_expansion", lambda numbers: DynamicExpansion(32, numbers.size("num_exp_dec"), BARELY, causal=True)),
        (
            "dynamic_expansion_bidirectional",
            lambda numbers: DynamicExpansion(32, numbers.size("num_exp_dec"), BARELY, causal=False),
        ),
    ],
)
@pytest.mark.parametrize("training", [False, True])
def test_released_layers(official, name, layer, training):
    """Training with dropout takes another route through the algebra; a vanishing rate makes it comparable."""
    numbers = official(f"expansionnet_{name}")
    layer = layer(numbers).double().train(training)
    layer.load_state_dict({CONVERTER.name(key): value for key, value in numbers.group("param/").items()})
    x, mask = numbers["in/x"].requires_grad_(), numbers["in/mask"].bool()
    mask = mask[:, 0] if name == "static_expansion" else mask.diagonal(dim1=1, dim2=2)
    y = layer(x) * mask[..., None] if name == "dynamic_expansion" else layer(x, mask)
    torch.testing.assert_close(y, numbers["out/y"], atol=1e-10, rtol=1e-10)
    (y * numbers["in/loss_weight"]).sum().backward()
    expected = {CONVERTER.name(key): gradient for key, gradient in numbers.group("grad/param/").items()}
    found = {key: parameter.grad for key, parameter in layer.named_parameters()}
    torch.testing.assert_close({**found, "x": x.grad}, {**expected, "x": numbers["grad/in/x"]}, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("causal", [True, False])
def test_dynamic_expansion(dtype, causal):
    layer = random_weights(DynamicExpansion(8, 3, BARELY, causal), dtype)
    x, weight = torch.randn(2, 4, 6, 8, dtype=dtype)
    mask = None if causal else torch.arange(6) < (6 - torch.arange(4))[:, None]
    fast, slow = run(layer.eval(), x, mask, weight), run(layer.train(), x, mask, weight)
    for quick, plain in zip(fast, slow, strict=True):
        torch.testing.assert_close(quick, plain, atol=10 * TOLERANCE[dtype], rtol=10 * TOLERANCE[dtype])
