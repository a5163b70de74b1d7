"""The laws that the benchmark takes for granted of a model, at its tiny size: `pytest test_mine.py`."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from harness.utils.plugins import load_plugin
from zoo import Captioner, Visual, create_model, list_models, model_card
from zoo.decoding import beam_search
from zoo.laws import CAPTIONS, LAWS, random_captions

IMAGES, CELLS, CHANNELS, VOCABULARY, BEGIN, END = 3, 5, 6, 23, 1, 2

if "mine" not in list_models():
    load_plugin(str(Path(__file__).with_name("mine.py")))


@pytest.fixture
def model() -> Captioner:
    torch.manual_seed(0)
    tiny = model_card("mine").tiny
    return create_model("mine", vocab_size=VOCABULARY, visual_dim=CHANNELS, **tiny).double().eval()


def images(number: int = IMAGES) -> Visual:
    """Image b has b cells of padding."""
    generator = torch.Generator().manual_seed(1)
    features = torch.rand(number, CELLS, CHANNELS, dtype=torch.float64, generator=generator)
    mask = torch.arange(CELLS) < (CELLS - torch.arange(number) % CELLS)[:, None]
    return Visual(features, mask)


def captions(number: int) -> torch.Tensor:
    return random_captions(number, 6, VOCABULARY, BEGIN)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_law_holds(model: Captioner, law: Callable[[Captioner, Visual, torch.Tensor], None]) -> None:
    law(model, images(), captions(CAPTIONS * IMAGES))


@torch.no_grad()
def test_beam_search_scores_what_whole_captions_score(model: Captioner) -> None:
    memory = model.encode(images())
    hypotheses = beam_search(model, memory, beam_size=3, max_len=5, bos=BEGIN, eos=END)
    tokens = hypotheses.tokens.flatten(0, 1)
    inputs = torch.cat((torch.full_like(tokens[:, :1], BEGIN), tokens[:, :-1]), 1)
    log_probs = model.decode(memory, inputs).log_softmax(-1).gather(2, tokens[..., None])[..., 0]
    mask = torch.arange(5) < hypotheses.lengths.flatten()[:, None]
    torch.testing.assert_close(hypotheses.log_probs.flatten(0, 1)[mask], log_probs[mask])


def test_it_learns_captions_by_heart(model: Captioner) -> None:
    model.train().set_dropout(0.0)
    visual = images(8)
    tokens = captions(8)
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    right = 0.0
    for _ in range(300):
        logits = model(visual, tokens[:, :-1])
        right = float((logits.argmax(-1) == tokens[:, 1:]).double().mean())
        if right == 1:
            break
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        torch.autograd.backward(loss)
        optimiser.step()
    assert right == 1
