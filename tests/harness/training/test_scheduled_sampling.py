"""Scheduled sampling: the words a model draws follow from those before them, for every architecture."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from harness.config.schedule import Stage
from harness.data.batches import Batch
from harness.training.objectives import CrossEntropy, cross_entropy, scheduled_sampling_inputs
from tests.zoo.test_laws import beside
from zoo import Captioner, DecodingState, Visual, create_model, model_card
from zoo.decoding import greedy

WORDS = 13


def model_and_visual(name: str, images: int) -> tuple[Captioner, Visual]:
    """A tiny model, and something for it to see."""
    card = model_card(name)
    torch.manual_seed(1)
    model = create_model(name, vocab_size=WORDS, visual_dim=0 if card.visual in {"none", "pixels"} else 8, **card.tiny)
    if card.visual == "pixels":
        return model.eval(), Visual(pixels=torch.rand(images, 3, 64, 64))
    cells = 1 if card.visual == "pooled" else 5
    boxes = torch.rand(images, cells, 4).cumsum(-1) / 4
    mask = torch.ones(images, cells, dtype=torch.bool)
    boxed = boxes if card.visual.startswith("regions") else None
    return model.eval(), Visual(torch.randn(images, cells, 8), mask, boxed, **beside(model, images))


def likeliest(distribution: Tensor, _: int) -> Tensor:
    """In place of a draw."""
    return distribution.argmax(-1, keepdim=True)


def test_words_that_are_all_drawn_make_a_caption_of_the_models_own(
    architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, visual = model_and_visual(architecture, images=2)
    memory = model.encode(visual)
    inputs = torch.randint(4, WORDS, (6, 5))
    inputs[:, 0] = 1
    monkeypatch.setattr(torch, "multinomial", likeliest)
    mixed = scheduled_sampling_inputs(model, memory, inputs, 1.0)
    best = greedy(model, memory, max_len=4, bos=1, eos=2)
    for row, caption in zip(mixed, best.tokens[:, 0].repeat_interleave(3, 0).tolist(), strict=True):
        length = caption.index(2) if 2 in caption else 4  # greedy decoding ends there, drawing goes on
        assert row[1 : length + 1].tolist() == caption[:length]
    assert torch.equal(mixed[:, 0], inputs[:, 0])


def test_a_drawn_word_follows_from_the_mixed_words_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model, visual = model_and_visual("transformer_base", images=2)
    memory = model.encode(visual)
    inputs = torch.randint(4, WORDS, (4, 6))
    monkeypatch.setattr(torch, "multinomial", likeliest)
    mixed = scheduled_sampling_inputs(model, memory, inputs, 0.5)
    drawn = model.decode(memory, mixed).argmax(-1)[:, :-1]
    kept = mixed[:, 1:] == inputs[:, 1:]
    assert torch.equal(mixed[:, 1:][~kept], drawn[~kept])
    assert kept.any()
    assert (~kept).any()


def test_inputs_are_replaced_as_often_as_asked_for() -> None:
    model, visual = model_and_visual("blind", images=4)
    inputs = torch.full((800, 5), 50)  # no word of the vocabulary: whatever else stands there was drawn
    inputs[:, 0] = 1

    def step(words: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        return torch.zeros(len(words), WORDS), state

    model.step = step  # type: ignore[method-assign]
    mixed = scheduled_sampling_inputs(model, model.encode(visual), inputs, 0.3)
    assert (mixed[:, 1:] != 50).float().mean().item() == pytest.approx(0.3, abs=0.03)


def test_the_loss_is_that_of_the_true_words_given_the_mixed_ones() -> None:
    model, visual = model_and_visual("transformer_base", images=2)
    tokens = torch.randint(4, WORDS, (4, 6))
    stage = Stage.model_validate(
        {"name": "xe", "epochs": 9, "batch_size": 2, "learning_rate": {"peak": 0.1},
         "scheduled_sampling": {"every": 1, "step": 0.5, "most": 0.5}}
    )  # fmt: skip
    objective, batch = CrossEntropy(stage), Batch(visual, tokens, (0, 1))
    torch.testing.assert_close(objective(model, batch, 0), cross_entropy(model(visual, tokens[:, :-1]), tokens))
    torch.manual_seed(7)
    found = objective(model, batch, 1)
    torch.manual_seed(7)
    mixed = scheduled_sampling_inputs(model, model.encode(visual), tokens[:, :-1], 0.5)
    assert not torch.equal(mixed, tokens[:, :-1])
    torch.testing.assert_close(found, cross_entropy(model(visual, mixed), tokens))
    found.backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is not None for parameter in model.parameters())
