"""No model computes with tensors of the processor where its own lie on a GPU, and half precision trains it too."""

import torch

import zoo
from tests.zoo.elsewhere import Elsewhere
from tests.zoo.test_laws import beside
from zoo.decoding import beam_search
from zoo.layers.expansion import full_precision, normalise

CHANNELS, VOCAB, BOS, EOS = 6, 23, 1, 2


def test_training_and_decoding_stay_on_the_device(architecture):
    model = zoo.create_model(architecture, vocab_size=VOCAB, visual_dim=CHANNELS, **zoo.model_card(architecture).tiny)
    seen = 1 if model.visual.kind == "pooled" else 5
    mask = torch.ones(3, seen, dtype=torch.bool)
    parts = torch.rand(3, seen, CHANNELS), mask, torch.rand(3, seen, 4), torch.rand(3, 3, 32, 32)
    visual = zoo.Visual(*parts, **beside(model, 3))
    model, visual, tokens = model.to("meta"), visual.to("meta"), torch.ones(6, 4, dtype=torch.long, device="meta")
    with Elsewhere():
        model.train()(visual, tokens).sum().backward()
        model.eval()
        found = beam_search(model, model.encode(visual), beam_size=2, max_len=3, bos=BOS, eos=EOS)
    assert found.scores.is_meta


def test_autocast_trains_and_decodes(architecture):
    torch.manual_seed(0)
    model = zoo.create_model(architecture, vocab_size=23, visual_dim=6, **zoo.model_card(architecture).tiny)
    features, mask = torch.rand(2, 5, 6), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    seen = 1 if model.visual.kind == "pooled" else 5
    boxes = torch.rand(2, seen, 4) + torch.tensor([0, 0, 1, 1])
    visual = zoo.Visual(features[:, :seen], mask[:, :seen], boxes, torch.rand(2, 3, 32, 32), **beside(model, 2))
    tokens = torch.randint(3, 23, (4, 6))
    with torch.autocast("cpu", torch.bfloat16):
        model(visual, tokens).float().square().mean().backward()
        model.eval()
        with torch.no_grad():
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
