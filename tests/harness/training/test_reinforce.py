"""REINFORCE: what reaches the model and what the baseline, and that the reward rises."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from harness.config.schedule import Schedule, Stage
from harness.data.batches import Batch
from harness.data.dataset import Sample
from harness.data.vocabulary import Vocabulary
from harness.training.self_critical import ReinforceLoss, targets_of
from harness.training.stage import make_objective
from harness.utils.errors import BenchError
from tests.harness.training.tiny_training import fit_tiny
from zoo import Captioner, Visual, create_model, model_card
from zoo.recurrent import RecurrentCaptioner

IMAGES = [
    Sample(number, f"{number}.png", "train", (f"{colour} {thing}",))
    for number, (colour, thing) in enumerate((c, t) for c in ("red", "blue") for t in ("ball", "cube"))
]
VOCABULARY = Vocabulary.build((caption for image in IMAGES for caption in image.captions), 1)
VISUAL = Visual(torch.eye(4)[:, None] * 3, torch.ones(4, 1, dtype=torch.bool))
BATCH = Batch(VISUAL, torch.ones(4, 2, dtype=torch.long), (0, 1, 2, 3))
RECURRENT = ("cgru", "show_tell")


def stage(**changes: Any) -> Stage:
    content = {
        "name": "reinforce", "objective": "reinforce", "epochs": 2, "batch_size": 4, "dropout": 0.0,
        "learning_rate": {"peak": 0.01}, "reinforce": {"max_len": 5},
    }  # fmt: skip
    return Stage.model_validate(content | changes)


def tiny(name: str) -> Captioner:
    torch.manual_seed(0)
    model = create_model(name, vocab_size=len(VOCABULARY), visual_dim=4, **model_card(name).tiny)
    model.set_dropout(0.0)
    return model.train()


def objective_for(model: Captioner, settings: Stage | None = None) -> ReinforceLoss:
    objective = make_objective(settings or stage(), model, IMAGES, VOCABULARY)
    assert isinstance(objective, ReinforceLoss)
    return objective


@pytest.mark.parametrize("name", RECURRENT)
def test_the_loss_and_both_gradients_are_those_of_the_definition(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny(name)
    objective = objective_for(model)
    nn.init.normal_(objective.baseline.weight)
    nn.init.normal_(objective.baseline.bias)
    drawn = objective._explore(model, BATCH)
    monkeypatch.setattr(objective, "_explore", lambda *_: drawn)
    objective(model, BATCH).backward()
    found = {name: value.grad for name, value in model.named_parameters()}
    learnt = [value.grad for value in objective.parameters()]
    model.zero_grad()

    assert isinstance(model, RecurrentCaptioner)
    tokens, inputs, said = targets_of(drawn, VOCABULARY.bos, int(drawn.lengths.max()))
    logits, states = model.decode_with_states(model.encode(VISUAL), inputs)
    rewards = objective._rewards(BATCH.image_ids, drawn).float()
    assert rewards.std() > 0
    weight, bias = (value.detach().clone().requires_grad_() for value in objective.parameters())
    policy, error = torch.zeros(()), torch.zeros(())
    for row in range(4):
        length = int(said[row].sum())
        assert length == int(drawn.lengths[row, 0])
        for t in range(length):
            predicted = (weight[0] * states[row, t].detach()).sum() + bias[0]
            log_prob = logits[row, t].log_softmax(-1)[tokens[row, t]]
            policy = policy - (rewards[row, 0] - predicted.detach()) * log_prob / 4
            error = error + (rewards[row, 0] - predicted) ** 2 / length / 4
    policy.backward()  # type: ignore[no-untyped-call]
    error.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(objective(model, BATCH), policy + error)
    for label, value in model.named_parameters():
        torch.testing.assert_close(found[label], value.grad, msg=label)
    for ours, theirs in zip(learnt, (weight.grad, bias.grad), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_captions_are_drawn_without_dropout_and_a_graph() -> None:
    model = tiny("cgru")
    model.set_dropout(0.9)
    objective = objective_for(model)
    torch.manual_seed(3)
    drawn = objective._explore(model, BATCH)
    torch.manual_seed(3)
    model.set_dropout(0.0)
    assert torch.equal(objective._explore(model, BATCH).tokens, drawn.tokens)
    assert drawn.tokens.shape == (4, 1, 5)
    assert not drawn.log_probs.requires_grad
    assert model.training
    assert objective.weight(BATCH) == 4


def test_training_raises_the_reward_and_the_baseline_follows_it() -> None:
    model = tiny("cgru")
    objective = objective_for(model)
    optimiser = torch.optim.Adam([*model.parameters(), *objective.parameters()], 0.01)
    level = []
    for _ in range(100):
        optimiser.zero_grad()
        objective(model, BATCH).backward()
        optimiser.step()
        level.append(objective._rewards(BATCH.image_ids, objective._explore(model, BATCH)).mean().item())
    assert sum(level[-20:]) / 20 > sum(level[:20]) / 20 + 1.0
    assert objective.baseline.bias.item() > 0.5


def test_reinforce_refuses_a_model_without_recurrent_states(tmp_path: Path) -> None:
    schedule = Schedule(name="t", summary="t", stages=(stage(),))
    with pytest.raises(BenchError, match=r"stage 'reinforce' .* this model has none"):
        objective_for(tiny("transformer_base"))
    with pytest.raises(BenchError, match="recurrent decoder's states"):
        fit_tiny(tmp_path, schedule=schedule)
