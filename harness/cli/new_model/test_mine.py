"""The laws that the benchmark takes for granted of a model, at its tiny size: `pytest test_mine.py`."""

from pathlib import Path

import pytest
import torch

from harness.utils.plugins import load_plugin
from zoo import Captioner, Visual, create_model, list_models, model_card
from zoo.decoding import beam_search

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


def captions(number: int, length: int = 6) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    tokens = torch.randint(3, VOCABULARY, (number, length), generator=generator)
    tokens[:, 0] = BEGIN
    return tokens


@torch.no_grad()
def test_word_by_word_equals_whole_captions(model: Captioner) -> None:
    memory, tokens = model.encode(images()), captions(2 * IMAGES)  # two captions an image
    state, logits = model.start(memory).expand(2), []
    for words in tokens.unbind(1):
        found, state = model.step(words, state)
        logits.append(found)
    torch.testing.assert_close(torch.stack(logits, 1), model.decode(memory, tokens))


@torch.no_grad()
def test_no_word_sees_a_later_one(model: Captioner) -> None:
    memory, tokens = model.encode(images()), captions(IMAGES)
    other = tokens.clone()
    other[:, 3:] = 3
    torch.testing.assert_close(model.decode(memory, other)[:, :3], model.decode(memory, tokens)[:, :3])


@torch.no_grad()
def test_padding_and_the_other_images_change_nothing(model: Captioner) -> None:
    seen, tokens = images(), captions(IMAGES)
    logits = model(seen, tokens)
    assert seen.features is not None
    assert seen.mask is not None
    for image, count in enumerate(seen.mask.sum(1).tolist()):
        alone = Visual(seen.features[image : image + 1, :count], seen.mask[image : image + 1, :count])
        torch.testing.assert_close(model(alone, tokens[image : image + 1]), logits[image : image + 1])


@torch.no_grad()
def test_beam_search_scores_what_it_says(model: Captioner) -> None:
    memory = model.encode(images())
    found = beam_search(model, memory, beam_size=3, max_len=5, bos=BEGIN, eos=END)
    assert found.tokens.shape[:2] == (IMAGES, 3)
    assert found.scores.isfinite().all()


def test_it_learns_captions_by_heart(model: Captioner) -> None:
    model.train().set_dropout(0.0)
    seen, tokens = images(8), captions(8)
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    right = 0.0
    for _ in range(300):
        logits = model(seen, tokens[:, :-1])
        right = float((logits.argmax(-1) == tokens[:, 1:]).double().mean())
        if right == 1:
            break
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        torch.autograd.backward(loss)
        optimiser.step()
    assert right == 1
