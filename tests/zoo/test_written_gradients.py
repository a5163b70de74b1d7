"""Gradients that are written out equal numerical ones, and in a loop those of a plain pass."""

import pytest
import torch
from torch.nn import functional as F

import zoo
from tests.zoo.test_laws import look
from zoo.fast.aoanet import AoAScan
from zoo.fast.looped import LoopedLinear, loop
from zoo.fast.switch import plain_forms
from zoo.fast.updown import UpDownScan
from zoo.layers.annotated_norm import AnnotatedNorm
from zoo.layers.expansion import GatedStreams, gate_streams, normalise
from zoo.layers.lstm import LSTMCell
from zoo.models.cgru import GRUCell
from zoo.recurrent import RecurrentCaptioner


def numbers(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def test_expansion_weights_and_gate():
    assert torch.autograd.gradcheck(GatedStreams(3).double().weigh, numbers(2, 3, 4))
    positive = (numbers(2, 3, 6).detach().abs() + 0.1).requires_grad_()
    for arguments in ((-1,), ((1, 2),), (-1, (1, 3, 2)), (1, (), 3.0)):
        assert torch.autograd.gradcheck(lambda weights, given=arguments: normalise(weights, *given), positive)
    assert torch.autograd.gradcheck(gate_streams, (numbers(2, 3, 4), numbers(4, 3, 4)))


def test_annotated_norm():
    norm = AnnotatedNorm(4).double()
    x = numbers(3, 4)
    assert torch.autograd.gradcheck(lambda x, *_: norm(x), (x, norm.gain, norm.shift))
    equal = torch.ones(2, 4, dtype=torch.float64, requires_grad=True)
    norm(equal).sum().backward()
    assert torch.equal(equal.grad, torch.zeros_like(equal))


def lstm(cell):
    return lambda word, rows: cell(cell.project(word), rows[0], rows[1])


def read(cell):
    return lambda word, rows: cell.read(word, (rows[0],), rows[1])


def gru(cell):
    def step(word, rows):
        state = cell(cell.project(word), rows[0])
        return state, state

    return step


def linear(layer):
    return lambda word, rows: (layer(word + rows[0]).tanh(), rows[1])


def normed(layer):
    return lambda word, rows: (layer(word + rows[0]), rows[1])


@pytest.mark.parametrize(
    ("module", "step"),
    [
        (LSTMCell(4, 4, 4), lstm),
        (LSTMCell(4, 4, 4), read),
        (LSTMCell(4, 4, 4, bias=False), read),
        (LSTMCell(4, 4, 4, maxout=True), read),
        (GRUCell(4, 4), gru),
        (LoopedLinear(4, 4), linear),
        (AnnotatedNorm(4), normed),
    ],
)
def test_a_loop_has_the_gradients_of_single_positions(module, step):
    advance, words = step(module.double()), numbers(5, 3, 4)

    def gradients(looped):
        module.zero_grad()
        words.grad, rows, outputs = None, (torch.zeros(3, 4).double(), torch.zeros(3, 4).double()), []
        with loop([module] if looped else []):
            for word in words:
                rows = advance(word, rows)
                outputs.append(rows[0])
        torch.stack(outputs).sin().sum().backward()
        return [words.grad, *(parameter.grad for parameter in module.parameters())]

    for found, expected in zip(gradients(True), gradients(False), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", ["updown", "cgru", "aoanet", "adaptive_attention", "show_attend_tell", "x_lan"])
def test_a_second_pass_adds_its_gradients_to_the_first(name):
    model = zoo.create_model(name, vocab_size=9, visual_dim=6, **zoo.model_card(name).tiny).double().eval()
    visual = zoo.Visual(torch.rand(2, 1 if model.visual.kind == "pooled" else 4, 6).double())
    loss = model(visual, torch.randint(3, 9, (4, 5))).square().mean()
    loss.backward(retain_graph=True)
    once = [parameter.grad.clone() for parameter in model.parameters()]
    loss.backward()
    for parameter, gradient in zip(model.parameters(), once, strict=True):
        torch.testing.assert_close(parameter.grad, 2 * gradient)


def test_scan_of_updown():
    width, length, rows, images = 2, 3, 4, 2
    inputs, keys, values = numbers(rows, length, 4 * width), numbers(images, 3, 5), numbers(images, 3, width)
    attention_bias = torch.tensor([0.0, 0.0, -1e300]).double().expand(images, 1, 3)
    weights = [numbers(4 * width, 2 * width), numbers(5, width), numbers(1, 5), numbers(4 * width, 3 * width)]

    def scanned(inputs, keys, values, *weights):
        return UpDownScan.apply(inputs, keys, attention_bias, values, *weights)

    assert torch.autograd.gradcheck(scanned, (inputs, keys, values, *weights, numbers(4 * width)))


@pytest.mark.parametrize("dropping", [False, True])
def test_scan_of_aoa(dropping):
    width, length, rows, images, heads, memories = 4, 3, 4, 2, 2, 2
    keys, values = numbers(images, heads, 2 * memories, 2), numbers(images, heads, 2 * memories, 2)
    weights = [numbers(4 * width, 2 * width), numbers(width, width), numbers(width)]
    weights += [numbers(2 * width, 2 * width), numbers(2 * width)]
    attention_bias = torch.zeros(images, heads, 1, 2 * memories).double()
    shapes = (length, rows, width), (length, images * heads, rows // images, 2 * memories)
    dropped = tuple(F.dropout(torch.ones(shape).double(), 0.4) if dropping else None for shape in shapes)

    def scanned(inputs, keys, values, *weights):
        return AoAScan.apply(inputs, keys, values, attention_bias, *dropped, memories, *weights)

    assert torch.autograd.gradcheck(scanned, (numbers(rows, length, 4 * width), keys, values, *weights))


@pytest.mark.parametrize("name", ["updown", "aoanet", "image_transformer"])
def test_a_scan_equals_its_positions(name, monkeypatch):
    model = zoo.create_model(name, vocab_size=9, visual_dim=6, **zoo.model_card(name).tiny).double().eval()
    boxes = torch.rand(3, 4, 4).double().sort(-1).values
    mask = torch.arange(4) < torch.tensor([[4], [2], [0]])
    visual, tokens = zoo.Visual(torch.rand(3, 4, 6).double(), mask, boxes), torch.randint(3, 9, (6, 5))

    def passed():
        model.zero_grad()
        logits = model(visual, tokens)
        logits.sin().sum().backward()
        return [logits, *(parameter.grad for parameter in model.parameters())]

    scanned = passed()
    monkeypatch.setattr(type(model), "scan", RecurrentCaptioner.scan)
    for found, expected in zip(scanned, passed(), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", ["updown", "aoanet", "image_transformer", "cgru", "x_lan", "adaptive_attention"])
def test_in_half_precision_gradients_are_no_further_off_than_those_of_plain_loops(name):
    model = zoo.create_model(name, vocab_size=9, visual_dim=6, **zoo.model_card(name).tiny).eval()
    visual, tokens = look(model, dtype=torch.float32), torch.randint(3, 9, (6, 5))

    def gradients(half):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = model(visual, tokens).float().sin().sum()
        loss.backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    exact, written = gradients(False), gradients(True)
    with plain_forms():
        plain = gradients(True)
    assert (written - exact).norm() <= 1.05 * (plain - exact).norm() < 0.05 * exact.norm()


def test_fast_forms_equal_the_plain_ones(architecture):
    """Logits and gradients of every model, in float64."""
    model = zoo.create_model(architecture, vocab_size=9, visual_dim=6, **zoo.model_card(architecture).tiny)
    model = model.double().eval()
    visual, tokens = look(model), torch.randint(3, 9, (6, 5))

    def passed():
        model.zero_grad()
        logits = model(visual, tokens)
        logits.sin().sum().backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        return {"logits": logits.detach()} | {name: value for name, value in gradients.items() if value is not None}

    fast = passed()
    with plain_forms():
        plain = passed()
    scale = max(value.abs().max() for value in plain.values())
    assert fast.keys() == plain.keys()
    assert max((fast[name] - plain[name]).abs().max() for name in plain) <= 1e-12 * max(scale, 1.0)
