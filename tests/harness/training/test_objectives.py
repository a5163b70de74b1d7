"""Cross-entropy is that of its authors' code, however a batch is split, compiled, or told in drawn words."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from harness.config.schedule import Stage
from harness.data.batches import Batch
from harness.training.objectives import CrossEntropy, cross_entropy, scheduled_sampling_inputs
from tests.harness.training.tiny_training import VOCABULARY, tiny_schedule
from tests.zoo.test_laws import VOCAB, look, tiny
from zoo import Captioner, DecodingState, Visual, create_model, model_card
from zoo.decoding import greedy


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_losses_of_parts_weigh_as_much_as_their_words(parts: int) -> None:
    torch.manual_seed(5)
    model = create_model("blind", vocab_size=VOCABULARY, visual_dim=8, **model_card("blind").tiny).eval()
    tokens = torch.tensor([[1, 4, 5, 6, 2], [1, 4, 2, 0, 0], [1, 2, 0, 0, 0]]).repeat_interleave(2, 0)
    batch = Batch(Visual(torch.zeros(3, 1, 8), torch.ones(3, 1, dtype=torch.bool)), tokens, (7, 8, 9))
    objective = CrossEntropy(tiny_schedule().stages[0])
    split = batch.split(parts)
    assert [image for part in split for image in part.image_ids] == [7, 8, 9]
    assert len(split) == min(parts, 3)
    mean = sum(objective(model, part) * objective.weight(part) for part in split) / objective.weight(batch)
    torch.testing.assert_close(mean, objective(model, batch))


@pytest.mark.parametrize(("eps", "name"), [(0.0, "lm"), (0.1, "ls0.1"), (0.2, "ls0.2")])
def test_cross_entropy_is_that_of_luos_code(eps: float, name: str) -> None:
    with np.load(Path(__file__).parents[2] / "fixtures" / "training" / "losses.npz") as file:
        theirs = {key: torch.from_numpy(file[key]) for key in ("in/logprobs", "in/seq", "in/mask", f"out/{name}")}
    classes = theirs["in/logprobs"].shape[-1]
    words = torch.where(theirs["in/mask"] > 0, theirs["in/seq"], -1)
    tokens = torch.cat((torch.zeros_like(words[:, :1]), words), 1)
    constant = (1 - eps) * math.log(1 - eps) + eps * math.log(eps / (classes - 1)) if eps else 0.0
    ours = cross_entropy(theirs["in/logprobs"], tokens, eps * classes / (classes - 1), pad=-1).double() + constant
    torch.testing.assert_close(ours, theirs[f"out/{name}"], atol=1e-6, rtol=0)


def model_and_visual(name: str, images: int) -> tuple[Captioner, Visual]:
    """A tiny model, and something for it to see."""
    torch.manual_seed(1)
    model = tiny(name)
    return model, look(model, images)


def likeliest(distribution: Tensor, _: int) -> Tensor:
    """In place of a draw."""
    return distribution.argmax(-1, keepdim=True)


def test_words_that_are_all_drawn_make_a_caption_of_the_models_own(
    architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, visual = model_and_visual(architecture, images=2)
    memory = model.encode(visual)
    inputs = torch.randint(4, VOCAB, (6, 5))
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
    inputs = torch.randint(4, VOCAB, (4, 6))
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
        return torch.zeros(len(words), VOCAB), state

    model.step = step  # type: ignore[method-assign]
    mixed = scheduled_sampling_inputs(model, model.encode(visual), inputs, 0.3)
    assert (mixed[:, 1:] != 50).float().mean().item() == pytest.approx(0.3, abs=0.03)


def test_the_loss_is_that_of_the_true_words_given_the_mixed_ones() -> None:
    model, visual = model_and_visual("transformer_base", images=2)
    tokens = torch.randint(4, VOCAB, (4, 6))
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
