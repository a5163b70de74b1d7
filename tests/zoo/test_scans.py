"""The scans' hand-written gradients equal numerical ones, and their outputs and gradients those of the plain loop."""

import pytest
import torch
from torch.nn import functional as F

import zoo
from tests.zoo.test_laws import look
from zoo.fast.aoanet import AoAScan
from zoo.fast.updown import UpDownScan
from zoo.laws import BrokenLawError, check_laws
from zoo.layers.annotated_norm import AnnotatedNorm
from zoo.models.updown import UpDown
from zoo.recurrent import RecurrentCaptioner


def numbers(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def test_annotated_norm_of_equal_numbers_has_a_gradient_of_zero():
    norm = AnnotatedNorm(4).double()
    equal = torch.ones(2, 4, dtype=torch.float64, requires_grad=True)
    norm(equal).sum().backward()
    assert torch.equal(equal.grad, torch.zeros_like(equal))


@pytest.mark.parametrize("name", ["updown", "aoanet"])
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


@pytest.mark.parametrize("name", ["updown", "aoanet", "cgru", "x_lan", "adaptive_attention", "show_attend_tell"])
def test_under_autocast_recurrences_are_in_full_precision(name, monkeypatch):
    model = zoo.create_model(name, vocab_size=9, visual_dim=6, **zoo.model_card(name).tiny).eval()
    visual, tokens, types = look(model, dtype=torch.float32), torch.randint(3, 9, (6, 5)), set()
    advance = model.advance

    def watched(inputs, rows, images):
        assert not torch.is_autocast_enabled("cpu")
        types.update(part.dtype for part in (inputs, *rows.values(), *images.values()) if part.is_floating_point())
        return advance(inputs, rows, images)

    def gradients(half):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = model(visual, tokens).float().sin().sum()
        loss.backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    full, half = gradients(False), gradients(True)
    assert 0 < (half - full).norm() < 0.05 * full.norm()
    monkeypatch.setattr(model, "advance", watched)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        model(visual, tokens)
    assert types == {torch.float32}


class _HalfAttended(UpDown):
    """Another recurrence than its base's: the image counts half."""

    def advance(self, inputs, rows, images):
        output, rows = super().advance(inputs, rows, images)
        return output / 2, rows


class _WrongScan(UpDown):
    def scan(self, inputs, images):
        return super().scan(inputs, images) / 2


def test_a_subclass_with_another_recurrence_is_trained_by_it():
    model, visual, tokens = _tiny(_HalfAttended)
    check_laws(model, visual, vocab_size=9, begin=1)
    model(visual, tokens).square().mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_fast_form_of_another_recurrence_breaks_a_law():
    model, visual, _ = _tiny(_WrongScan)
    with pytest.raises(BrokenLawError, match="training and inference"):
        check_laws(model, visual, vocab_size=9, begin=1)


def _tiny(kind):
    torch.manual_seed(0)
    arguments = {"visual_dim": 6, "vocab_size": 9, **zoo.model_card("updown").tiny}
    model = kind(**arguments).double().eval()
    return model, zoo.Visual(torch.rand(2, 4, 6).double()), torch.randint(3, 9, (4, 5))
