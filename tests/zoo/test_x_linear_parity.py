"""X-LAN and X-Transformer equal their authors' code in float64: outputs, losses, gradients and captions."""

import pytest
import torch
from torch.nn import functional as F

import zoo
from zoo.decoding import beam_search, greedy
from zoo.layers.x_linear import seen_where
from zoo.weights import from_official, x_linear

close = {"atol": 1e-10, "rtol": 1e-10}
MODELS = ["x_lan", "x_transformer"]


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


@pytest.fixture
def numbers(official, name):
    return official(name)


@pytest.fixture
def model(numbers, name):
    return from_official(name, numbers.group("param/")).eval()


def look(numbers):
    return zoo.Visual(numbers["in/att_feats"], numbers["in/att_mask"].bool())


def test_the_encoder(numbers, model):
    visual, memory = look(numbers), model.encode(look(numbers))
    torch.testing.assert_close(memory.features[memory.mask], numbers["out/encoder_att"][memory.mask], **close)
    seen = seen_where(visual.mask, torch.float64)
    _, vector = model.encoder(model.region_embedding(visual.features), visual.mask, seen)
    torch.testing.assert_close(vector, numbers["out/encoder_global"], **close)
    if numbers.group("out/p_att_feats"):
        projected = torch.cat((memory.extra["0.keys"], memory.extra["0.values"]), -1).transpose(1, 2)
        expected = numbers["out/p_att_feats"].transpose(1, 2)
        torch.testing.assert_close(projected[memory.mask], expected[memory.mask], **close)


def test_log_probabilities_losses_and_gradients(numbers, model):
    tokens, target = numbers["in/input_seq"], numbers["in/target_seq"]
    log_probs = model(look(numbers), tokens).log_softmax(-1)
    spoken = target >= 0
    torch.testing.assert_close(log_probs[spoken], numbers["out/logprobs"][spoken], **close)
    loss = F.nll_loss(log_probs[spoken], target[spoken])
    torch.testing.assert_close(loss, numbers["out/loss_xe"], **close)
    smoothing = numbers.size("label_smoothing")
    wanted = torch.full_like(log_probs[spoken], smoothing / (model.vocab_size - 1))
    wanted.scatter_(1, target[spoken][:, None], 1 - smoothing)
    smoothed = (wanted * (wanted.log() - log_probs[spoken])).sum(-1).mean()
    torch.testing.assert_close(smoothed, numbers["out/loss_ls0.1"], **close)

    loss.backward()
    expected = x_linear.zoo_tensors(numbers.group("grad/"))
    found = {key: parameter.grad for key, parameter in model.named_parameters()}
    torch.testing.assert_close(found, expected, **close)


@torch.no_grad()
def test_greedy_captions(numbers, model):
    tokens = numbers["out/greedy_seq"]
    found = greedy(model, model.encode(look(numbers)), max_len=tokens.shape[1], bos=0, eos=0)
    assert torch.equal(found.tokens[:, 0], tokens)
    spoken = torch.arange(tokens.shape[1]) < found.lengths
    torch.testing.assert_close(found.log_probs[:, 0][spoken], numbers["out/greedy_logprobs"][spoken], **close)


@torch.no_grad()
def test_three_beams(numbers, model):
    """The authors rank by plain sums, and what is finished keeps its place."""
    tokens = numbers["out/beam3_seq"]
    found = beam_search(
        model,
        model.encode(look(numbers)),
        beam_size=3,
        max_len=tokens.shape[1],
        bos=0,
        eos=0,
        length_penalty=0.0,
    )
    assert torch.equal(found.tokens[:, 0], tokens)
    torch.testing.assert_close(found.log_probs[:, 0], numbers["out/beam3_logprobs"], **close)


@pytest.mark.parametrize(("name", "parameters"), [("x_lan", 75_189_781), ("x_transformer", 137_521_826)])
def test_published_sizes(name, parameters):
    with torch.device("meta"):
        model = zoo.create_model(name, vocab_size=9_488, visual_dim=2048)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
