"""Compiled training passes give the loss and the gradients of eager ones, on captions that are padded to one width."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from harness.config.load import load_preset
from harness.measure.inputs import batch_of, example_visual
from harness.training.objectives import cross_entropy
from zoo import Captioner, Visual, create_model

VOCABULARY, CHANNELS, WORDS, WIDTH = 40, 8, 5, 7
SMALL = ("size.d_model=16", "size.d_ff=16", "size.n_heads=2", "size.n_encoder_layers=1", "size.n_decoder_layers=1")


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("transformer_base", "aot_eager"),
        *(
            pytest.param(name, "inductor", marks=pytest.mark.campaign)
            for name in ("transformer_base", "updown", "expansionnet_v2", "image_transformer", "x_lan")
        ),
    ],
)
def test_compiled_steps_equal_eager_ones(name: str, backend: str) -> None:
    torch.manual_seed(0)
    arguments = load_preset("quick", SMALL).model_arguments(name)
    model = create_model(name, vocab_size=VOCABULARY, visual_dim=CHANNELS, **arguments).double().train()
    model.set_dropout(0.0)
    visual = batch_of(example_visual(model.visual, length=6), 2).to("cpu", torch.double)
    tokens = torch.randint(5, VOCABULARY, (4, WORDS))
    padded = torch.nn.functional.pad(tokens, (0, WIDTH - WORDS))
    expected, expected_gradients = step(model, visual, tokens)
    compiled = copy.copy(model)
    compiled.compile(backend=backend, dynamic=True)
    loss, gradients = step(compiled, visual, padded)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-10)
    assert gradients.keys() == expected_gradients.keys()
    for parameter, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected_gradients[parameter], rtol=1e-8, atol=1e-10, msg=parameter)


def step(model: Captioner, visual: Visual, tokens: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Loss and gradients."""
    model.zero_grad()
    loss = cross_entropy(model(visual, tokens[:, :-1]), tokens, 0.1)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach(), {
        parameter: value.grad for parameter, value in model.named_parameters() if value.grad is not None
    }
