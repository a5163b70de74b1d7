"""Geometric attention against its formula written out pair by pair, and what it may and may not depend on."""

import math

import pytest
import torch

import zoo
from zoo.layers.geometry import GeometricAttention, box_geometry

close = {"atol": 1e-10, "rtol": 1e-10}
REGIONS, HEADS, WIDTH = 5, 2, 8


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def random_boxes(images=2, regions=REGIONS):
    corner = torch.rand(images, regions, 2, dtype=torch.float64) / 2
    return torch.cat((corner, corner + 0.05 + torch.rand(images, regions, 2, dtype=torch.float64) / 2), -1)


def lone_pair(seen_from, seen):
    """The 64 numbers of one box as seen from another."""
    (ax, ay, aw, ah), (bx, by, bw, bh) = (
        ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1) for x1, y1, x2, y2 in (seen_from, seen)
    )
    relative = [
        math.log(max(abs(bx - ax) / aw, 1e-3)),
        math.log(max(abs(by - ay) / ah, 1e-3)),
        math.log(bw / aw),
        math.log(bh / ah),
    ]
    phases = [100 * value / 1000 ** (step / 8) for value in relative for step in range(8)]
    return [math.sin(phase) for phase in phases] + [math.cos(phase) for phase in phases]


def test_the_geometry_of_every_pair():
    boxes = random_boxes()
    mask = torch.tensor([[True] * REGIONS, [True] * 3 + [False] * 2])
    found = box_geometry(boxes, mask)
    assert found.shape == (2, REGIONS, REGIONS, 64)
    for image, length in enumerate(mask.sum(1).tolist()):
        own = boxes[image, :length].tolist()
        expected = torch.tensor([[lone_pair(a, b) for b in own] for a in own], dtype=torch.float64)
        torch.testing.assert_close(found[image, :length, :length], expected, **close)


@torch.no_grad()
def test_the_attention_of_every_pair():
    layer = GeometricAttention(WIDTH, HEADS).double()
    x, boxes = torch.randn(1, REGIONS, WIDTH, dtype=torch.float64), random_boxes(1)
    mask = torch.arange(REGIONS)[None] < 4
    query, key, value = (part(x[0]) for part in (layer.query, layer.key, layer.value))
    d_k = WIDTH // HEADS
    rows = []
    for m in range(REGIONS):
        heads = []
        for head in range(HEADS):
            own = slice(head * d_k, (head + 1) * d_k)
            weights = []
            for n in range(4):  # the fifth region is padding
                geometry = torch.tensor(lone_pair(boxes[0, m].tolist(), boxes[0, n].tolist()), dtype=torch.float64)
                w_g = max(float(layer.geometry.weight[head] @ geometry + layer.geometry.bias[head]), 0.0)
                w_a = float(query[m, own] @ key[n, own]) / math.sqrt(d_k)
                weights.append(max(w_g, 1e-6) * math.exp(w_a))
            heads.append(sum(w * value[n, own] for n, w in enumerate(weights)) / sum(weights))
        rows.append(torch.cat(heads))
    expected = layer.output(torch.stack(rows))
    found = layer(x, mask, box_geometry(boxes, torch.ones_like(mask)))[0]
    torch.testing.assert_close(found, expected, **close)


@pytest.fixture
def model():
    name = "object_relation_transformer"
    return zoo.create_model(name, vocab_size=9, visual_dim=6, **zoo.model_card(name).tiny).double().eval()


@torch.no_grad()
def test_captions_depend_only_on_relative_box_geometry(model):
    features, boxes = torch.rand(2, REGIONS, 6, dtype=torch.float64), random_boxes()
    tokens = torch.ones(2, 4, dtype=torch.long)

    def caption(boxes):
        return model(zoo.Visual(features, boxes=boxes), tokens)

    first = caption(boxes)
    torch.testing.assert_close(caption(boxes / 3 + 0.2), first, **close)
    torch.testing.assert_close(caption(boxes * torch.tensor([0.5, 0.25, 0.5, 0.25])), first, **close)
    moved = boxes.clone()
    moved[:, 0] += 0.1
    assert (caption(moved) - first).abs().max() > 1e-4
    assert (caption(boxes.flip(1)) - first).abs().max() > 1e-4


@pytest.mark.parametrize("filler", [0.0, math.nan, -1.0])
def test_boxes_of_padding_may_hold_anything(model, filler):
    features, boxes = torch.rand(1, REGIONS, 6, dtype=torch.float64), random_boxes(1)
    mask, tokens = torch.arange(REGIONS)[None] < 3, torch.ones(1, 4, dtype=torch.long)
    other = boxes.masked_fill(~mask[..., None], filler)
    found = model(zoo.Visual(features, mask, other), tokens)
    torch.testing.assert_close(found, model(zoo.Visual(features, mask, boxes), tokens), **close)
    found.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_boxes_are_asked_for(model):
    with pytest.raises(zoo.ZooError, match="needs the regions' boxes"):
        model.encode(zoo.Visual(torch.rand(1, REGIONS, 6)))
