"""Searches that keep their graph: for every registered model their gradient is that of teacher forcing."""

import torch

import zoo
from tests.zoo.test_laws import BOS, EOS, close, look, tiny
from zoo.decoding import beam_search, sample


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: part.grad for name, part in model.named_parameters() if part.grad is not None}


def forced(model, visual, found):
    """The same captions' log-probabilities (B, W, T) by teacher forcing; zeros after the end."""
    tokens = found.tokens.flatten(0, 1)
    inputs = torch.cat((torch.full_like(tokens[:, :1], BOS), tokens[:, :-1]), 1)
    log_probs = model(visual, inputs).log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
    said = torch.arange(tokens.shape[1]) < found.lengths.flatten()[:, None]
    return torch.where(said, log_probs, 0.0).view(found.tokens.shape)


def test_the_gradient_of_sampling_is_that_of_teacher_forcing(architecture):
    torch.manual_seed(0)
    model = tiny(architecture).train()
    model.set_dropout(0.0)
    visual = look(model)
    found = sample(model, model.encode(visual), n=2, max_len=model.max_len - 1, bos=BOS, eos=EOS, graph=True)
    again, weights = forced(model, visual, found), torch.rand_like(found.log_probs)
    close(found.log_probs, again)
    stepped, expected = (gradients(model, (each * weights).sum()) for each in (found.log_probs, again))
    assert stepped.keys() == expected.keys() != set()
    for name, gradient in expected.items():
        close(stepped[name], gradient)


def test_the_gradient_of_beams_is_that_of_teacher_forcing():
    torch.manual_seed(0)
    model = tiny("m2")
    visual = look(model)
    settings = {"beam_size": 4, "max_len": 6, "bos": BOS, "eos": EOS, "length_penalty": 0.0}
    found = beam_search(model, model.encode(visual), **settings, graph=True)
    again, weights = forced(model, visual, found), torch.rand_like(found.log_probs)
    close(found.log_probs, again)
    searched, expected = (gradients(model, (each * weights).sum()) for each in (found.log_probs, again))
    for name, gradient in expected.items():
        close(searched[name], gradient)


def test_searches_keep_no_graph_unless_asked():
    torch.manual_seed(0)
    model = tiny("updown")
    memory = model.encode(look(model))
    ends = {"max_len": 4, "bos": BOS, "eos": EOS}
    assert not sample(model, memory, n=2, **ends).log_probs.requires_grad
    assert not beam_search(model, memory, beam_size=2, **ends).log_probs.requires_grad
    with torch.no_grad():  # asked for inside, it is kept all the same
        assert sample(
            model, zoo.Memory(memory.features, memory.mask, memory.extra), n=2, **ends, graph=True
        ).log_probs.requires_grad
