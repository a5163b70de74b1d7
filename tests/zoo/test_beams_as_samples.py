"""Self-critical training of M2, DLCT and RSTNet on their authors' beams: log-probabilities and loss of their code.

Its loss is -mean over 20 steps of log p, times the reward less the mean reward of the beams, averaged over beams.
"""

import pytest
import torch

import zoo
from harness.training.self_critical import mean_of_all, self_critical_loss
from tests.zoo.test_grid_parity import grids, levels, load, load_rstnet
from tests.zoo.test_transformer_parity import load_m2
from zoo.decoding import beam_search


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
