"""Self-critical training on authors' own captions: the log-probabilities that are differentiated, and their losses.

M2, DLCT and RSTNet have beams for samples: -mean over 20 steps of log p, times the reward less the mean reward of the
beams, averaged over beams. X-LAN, X-Transformer, PureT and AoANet sample, and average over tokens up to the first 0.
"""

import pytest
import torch

import zoo
from harness.training.self_critical import mean_of_all, self_critical_loss
from tests.zoo import test_aoa_parity, test_puret_parity, test_x_linear_parity
from tests.zoo.test_grid_parity import grids, levels, load, load_rstnet
from tests.zoo.test_transformer_parity import load_m2
from zoo.decoding import beam_search, sample
from zoo.weights import aoa, from_official


def model_and_images(name, official):
    if name == "m2":
        numbers, model = load_m2(official)
        return numbers, model, zoo.Visual(numbers["in/regions_zero_padded"])
    if name == "dlct":
        numbers, model = load(official, "dlct")
        return numbers, model, levels(numbers)
    numbers, model = load_rstnet(official, leak=False)
    return numbers, model, grids(numbers)


@pytest.mark.parametrize("name", ["m2", "dlct", "rstnet"])
def test_beams_and_their_loss_are_the_authors(name, official):
    numbers, model, visual = model_and_images(name, official)
    theirs = numbers["out/beam3_logps"]
    images, beams, steps = theirs.shape
    ends = {"bos": numbers.size("bos"), "eos": numbers.size("eos")}
    found = beam_search(
        model, model.encode(visual), beam_size=beams, max_len=steps, length_penalty=0.0, **ends, graph=True
    )
    said = torch.arange(steps) < found.lengths[..., None]
    assert torch.equal(found.tokens[said], numbers["out/beam3_seq"][said])
    torch.testing.assert_close(found.log_probs, theirs, atol=1e-10, rtol=1e-10)

    torch.manual_seed(0)
    rewards = torch.rand(images, beams, dtype=torch.float64)
    expected = (-theirs.mean(-1) * (rewards - rewards.mean(-1, keepdim=True))).mean()
    advantages = (rewards - mean_of_all(rewards)).flatten()
    loss = self_critical_loss(found.log_probs.flatten(0, 1), said.flatten(0, 1), advantages, "steps", steps)
    torch.testing.assert_close(loss, expected, atol=1e-12, rtol=0)

    loss.backward()
    learnt = {key: part.grad for key, part in model.named_parameters() if part.grad is not None}
    model.zero_grad()
    tokens = found.tokens.flatten(0, 1)
    inputs = torch.cat((torch.full_like(tokens[:, :1], ends["bos"]), tokens[:, :-1]), 1)
    forced = model(visual, inputs).log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
    self_critical_loss(forced, said.flatten(0, 1), advantages, "steps", steps).backward()
    for key, part in model.named_parameters():
        if part.grad is not None:
            torch.testing.assert_close(learnt[key], part.grad, atol=1e-10, rtol=1e-8, msg=key)


@pytest.mark.parametrize("name", ["x_lan", "x_transformer", "puret", "aoanet"])
def test_sampled_captions_and_their_loss_are_the_authors(name, official, monkeypatch):
    """Their fixtures hold greedy captions: here each draw is the likeliest word."""
    numbers = official(name, aoa.zoo_name) if name == "aoanet" else official(name)
    look = {"puret": test_puret_parity.look, "aoanet": test_aoa_parity.look}.get(name, test_x_linear_parity.look)
    heads = {"n_heads": numbers.size("heads")} if name == "aoanet" else {}
    model = from_official(name, numbers.group("param/") | numbers.group("buffer/"), **heads).eval()
    tokens, theirs = numbers["out/greedy_seq"], numbers["out/greedy_logprobs"]
    monkeypatch.setattr(torch, "multinomial", lambda likely, *_, **__: likely.argmax(-1, keepdim=True))
    steps = tokens.shape[1]
    found = sample(model, model.encode(look(numbers)), n=1, max_len=steps, bos=0, eos=0, graph=True)
    assert torch.equal(found.tokens[:, 0], tokens)

    advantages = torch.linspace(-1, 1, len(tokens), dtype=torch.float64)
    terms = []
    for words, log_probs, advantage in zip(tokens.tolist(), theirs, advantages, strict=True):
        end = words.index(0) + 1 if 0 in words else steps
        terms += [-log_prob * advantage for log_prob in log_probs[:end]]
    said = torch.arange(steps) < found.lengths
    loss = self_critical_loss(found.log_probs[:, 0], said, advantages, "tokens")
    torch.testing.assert_close(loss, torch.stack(terms).mean(), atol=1e-10, rtol=0)
    loss.backward()
    assert all(part.grad is not None for part in model.parameters())
