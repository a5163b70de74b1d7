"""Half precision trains every model and decodes with it."""

import torch

import zoo
from tests.zoo.test_laws import beside
from zoo.decoding import beam_search
from zoo.layers.expansion import normalise
from zoo.layers.looped import full_precision


def test_autocast_trains_and_decodes(architecture):
    torch.manual_seed(0)
    model = zoo.create_model(architecture, vocab_size=23, visual_dim=6, **zoo.model_card(architecture).tiny)
    features, mask = torch.rand(2, 5, 6), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    seen = 1 if model.visual.kind == "pooled" else 5
    boxes = torch.rand(2, seen, 4) + torch.tensor([0, 0, 1, 1])
    visual = zoo.Visual(features[:, :seen], mask[:, :seen], boxes, torch.rand(2, 3, 32, 32), **beside(model, 2))
    tokens = torch.randint(3, 23, (4, 6))
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(visual, tokens).float().square().mean()
    loss.backward()
    model.eval()
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        half = model(visual, tokens).float()
        memory = model.encode(visual)
        state, steps = model.start(memory).expand(2), []
        for position in range(tokens.shape[1]):
            logits, state = model.step(tokens[:, position], state)
            steps.append(logits.float())
        found = beam_search(model, memory, beam_size=3, max_len=6, bos=1, eos=2)
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    assert found.scores.dtype == found.log_probs.dtype == torch.float32
    assert found.scores.isfinite().all()
    assert ((found.lengths == 6) | (found.tokens == 2).any(-1)).all()
    with torch.no_grad():
        # A score that rounding moves across zero changes stream, however small it is, so that single rows may jump.
        near = (torch.stack((half, torch.stack(steps, 1))) - model(visual, tokens)).abs() < 0.15
    assert near.float().mean((1, 2, 3)).amin() > 0.95


def test_rows_of_zeros_stay_zeros_in_half_precision():
    rows = torch.zeros(2, 3, dtype=torch.float16)
    assert torch.equal(normalise(full_precision(rows), -1), torch.zeros(2, 3))
