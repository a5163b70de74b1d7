"""What models make of boxes: geometry of pairs, who lies inside whom, labels of edges, windows, and cells reached."""

import math

import pytest
import torch

import zoo
from tests.zoo.test_laws import close
from tests.zoo.test_parity import CELLS, levels
from zoo.layers.aoa import AttentionOnAttention
from zoo.layers.attention import SelfAttention
from zoo.layers.geometry import GeometricAttention, fill_padded_boxes, grid_cells, pair_geometry
from zoo.layers.spatial_graph import CHILD, NEIGHBOUR, PARENT, SpatialGraphAttention, spatial_graph
from zoo.models.dlct import alignment
from zoo.models.gcn_lstm import regat_labels, spatial_labels
from zoo.models.puret import box_cells, neighbours, square_cells

REGIONS, HEADS, WIDTH = 5, 2, 8
INSIDE, COVERS, OVERLAPS = 1, 2, 3


def random_boxes(images=2, count=REGIONS):
    corner = torch.rand(images, count, 2, dtype=torch.float64) / 2
    return torch.cat((corner, corner + 0.01 + torch.rand(images, count, 2, dtype=torch.float64) ** 3 / 2), -1)


def lone_pair(seen_from, seen):
    """The 64 numbers of one box as seen from another."""
    (ax, ay, aw, ah), (bx, by, bw, bh) = (
        ((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1) for x1, y1, x2, y2 in (seen_from, seen)
    )
    offsets = [max(abs(bx - ax) / aw, 1e-3), max(abs(by - ay) / ah, 1e-3)]
    relative = [math.log(value) for value in (*offsets, bw / aw, bh / ah)]
    phases = [100 * value / 1000 ** (step / 8) for value in relative for step in range(8)]
    return [math.sin(phase) for phase in phases] + [math.cos(phase) for phase in phases]


def test_the_geometry_of_every_pair():
    boxes = random_boxes()
    mask = torch.tensor([[True] * REGIONS, [True] * 3 + [False] * 2])
    whole = fill_padded_boxes(boxes, mask)
    found = pair_geometry(whole, whole)
    assert found.shape == (2, REGIONS, REGIONS, 64)
    for image, length in enumerate(mask.sum(1).tolist()):
        own = boxes[image, :length].tolist()
        expected = torch.tensor([[lone_pair(a, b) for b in own] for a in own], dtype=torch.float64)
        close(found[image, :length, :length], expected)


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
    found = layer(x, mask, pair_geometry(boxes, boxes))[0]
    close(found, expected)


@pytest.fixture
def model():
    name = "object_relation_transformer"
    return zoo.create_model(name, vocab_size=9, visual_dim=6, **zoo.model_card(name).tiny).double().eval()


@torch.no_grad()
def test_captions_depend_only_on_relative_box_geometry(model):
    features, boxes = torch.rand(2, REGIONS, 6, dtype=torch.float64), random_boxes()

    def caption(boxes):
        return model(zoo.Visual(features, boxes=boxes), torch.ones(2, 4, dtype=torch.long))

    first = caption(boxes)
    close(caption(boxes / 3 + 0.2), first)
    close(caption(boxes * torch.tensor([0.5, 0.25, 0.5, 0.25])), first)
    assert (caption(boxes.flip(1)) - first).abs().max() > 1e-4


@pytest.mark.parametrize("filler", [0.0, math.nan, -1.0])
def test_boxes_of_padding_may_hold_anything(model, filler):
    features, boxes = torch.rand(1, REGIONS, 6, dtype=torch.float64), random_boxes(1)
    mask, tokens = torch.arange(REGIONS)[None] < 3, torch.ones(1, 4, dtype=torch.long)
    other = boxes.masked_fill(~mask[..., None], filler)
    found = model(zoo.Visual(features, mask, other), tokens)
    close(found, model(zoo.Visual(features, mask, boxes), tokens))
    found.square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def by_definition(boxes, threshold=0.9):
    """The paper's spatial graph, pair by pair."""

    def share(one, other):
        width = max(0.0, min(one[2], other[2]) - max(one[0], other[0]))
        height = max(0.0, min(one[3], other[3]) - max(one[1], other[1]))
        return width * height / ((one[2] - one[0]) * (one[3] - one[1]))

    graph = torch.full((len(boxes), len(boxes)), NEIGHBOUR, dtype=torch.uint8)
    for i, one in enumerate(boxes.tolist()):
        for j, other in enumerate(boxes.tolist()):
            if share(one, other) >= threshold and share(one, other) > share(other, one):
                graph[i, j], graph[j, i] = PARENT, CHILD
    return graph


def test_the_paper_s_graph_is_that_of_its_definition():
    boxes = random_boxes(4, 30)
    graph = spatial_graph(boxes)
    assert all(torch.equal(found, by_definition(image)) for found, image in zip(graph, boxes, strict=True))
    assert (graph == PARENT).sum() > 20
    assert torch.equal(spatial_graph(boxes * torch.tensor([640, 480, 640, 480])), graph), "in any unit"
    assert torch.equal(spatial_graph(boxes.bfloat16()), spatial_graph(boxes.bfloat16().float()))


@pytest.mark.parametrize("precision", ["f32", "f64"])
@pytest.mark.parametrize("case", ["nested", "random", "ties", "disjoint", "exact09"])
def test_the_released_graph(official, case, precision):
    numbers = official("image_transformer_adjacency")
    boxes = numbers[f"in/{case}_{precision}"][None]
    found = spatial_graph(boxes, mode="official")[0]
    assert torch.equal(found.double(), numbers[f"out/{case}_{precision}"])
    if case == "disjoint":
        assert not torch.equal(spatial_graph(boxes)[0], found), "boxes apart contain each other only as released"


@pytest.mark.parametrize("mode", ["paper", "official"])
@pytest.mark.parametrize("garbage", [0.0, 1e30, math.nan])
def test_padding_takes_no_part(mode, garbage):
    boxes, mask = random_boxes(3, 8), torch.arange(8) < torch.tensor([8, 5, 1])[:, None]
    graph = spatial_graph(boxes.masked_fill(~mask[..., None], garbage), mask, mode=mode)
    assert torch.equal(graph > 0, mask[:, :, None] & mask[:, None])
    for image, count in enumerate(mask.sum(1).tolist()):
        assert torch.equal(graph[image, :count, :count], spatial_graph(boxes[image : image + 1, :count], mode=mode)[0])


def test_equal_boxes_boxes_without_area_and_cells_are_neighbours():
    boxes = torch.tensor([[[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0], [0.5, 0.5, 0.5, 0.6]]])
    assert (spatial_graph(boxes) == NEIGHBOUR).all()
    assert (spatial_graph(CELLS[None]) == NEIGHBOUR).all()


@torch.no_grad()
def test_all_neighbours_leave_one_of_three_attentions():
    gate = AttentionOnAttention(16)
    wide = SpatialGraphAttention(16, 4, 0.0, gate)
    narrow = SelfAttention(16, 4, causal=False, gate=gate)
    for part, weights in (("query", wide.query), ("key", wide.keys[1]), ("value", wide.values[1])):
        getattr(narrow, part).load_state_dict(weights.state_dict())
    x, mask = torch.rand(2, 5, 16), torch.arange(5) < torch.tensor([5, 3])[:, None]
    torch.testing.assert_close(wide(x, mask, torch.full((2, 5, 5), NEIGHBOUR)), narrow(x, mask))


def test_labels_of_boxes_as_released(official):
    numbers = official("gcn_lstm")
    size = numbers["in/image_wh"].tolist()
    found = regat_labels(numbers["in/boxes"][None], math.hypot(*size))[0]
    assert torch.equal(found, numbers["out/spatial_labels_secondhand"])


def box(x, y, width=2.0, height=2.0):
    return [x - width / 2, y - height / 2, x + width / 2, y + height / 2]


def labels_of(*boxes, diagonal=100.0):
    return spatial_labels(torch.tensor([boxes], dtype=torch.float64), diagonal)[0].tolist()


@pytest.mark.parametrize(
    ("degrees", "octant"),
    [(1, 1), (44, 1), (46, 2), (90, 2), (91, 3), (179, 4), (181, 5), (224, 5), (226, 6), (271, 7), (316, 8), (359, 8)],
)
def test_octants_are_opposite_both_ways(degrees, octant):
    """The offset of the first box from the second, clockwise from rightwards since y grows downwards."""
    angle = math.radians(degrees)
    found = labels_of(box(50 + 20 * math.cos(angle), 50 + 20 * math.sin(angle)), box(50, 50))
    assert found[0][1] == octant + 3
    assert found[1][0] == (octant + 3) % 8 + 4


@pytest.mark.parametrize(
    ("offset", "octant"),
    [((9, 0), 8), ((9, 9), 1), ((0, 9), 2), ((-9, 9), 3), ((-9, 0), 4), ((-9, -9), 5), ((0, -9), 6), ((9, -9), 7)],
)
def test_an_octant_has_its_end(offset, octant):
    assert labels_of(box(50 + offset[0], 50 + offset[1]), box(50, 50))[0][1] == octant + 3


def test_the_first_class_that_fits():
    around, within, half, apart = box(50, 50, 20, 20), box(45, 50, 10, 4), box(50, 53, 20, 20), box(80, 50, 2, 2)
    assert labels_of(around, within) == [[0, INSIDE], [COVERS, 0]]
    assert labels_of(around, half) == [[0, OVERLAPS], [OVERLAPS, 0]]
    assert labels_of(around, around) == [[0, OVERLAPS], [OVERLAPS, 0]]
    assert labels_of(around, apart, diagonal=60.0) == [[0, 4 + 3], [8 + 3, 0]]
    assert labels_of(around, apart, diagonal=59.0) == [[0, 0], [0, 0]]
    assert labels_of(box(50, 50, 20, 2), box(50, 50, 2, 20)) == [[0, 0], [0, 0]]


def cut(square, side, window):
    """A relation (1, L, L) of cells as relations (windows, cells, cells) within the windows of a plain grid."""
    row, column = square_cells(side * side, torch.device("cpu"))[0].unbind(-1)
    number = row // window * (side // window) + column // window
    inside = [torch.nonzero(number == each).flatten() for each in number.unique()]
    return torch.stack([square[0][places][:, places] for places in inside])


def test_the_released_windows(official):
    numbers, side, window, shift = official("puret"), 12, 6, 3
    cells = square_cells(side * side, torch.device("cpu"))
    assert torch.equal(cells, box_cells(grid_cells(side, side, like=CELLS)[None], side))
    visible, offset = neighbours(cells, side, window, 0)
    assert torch.equal(cut(offset, side, window)[0], numbers["out/rel_index_6"].long())
    assert cut(visible, side, window).all()
    # The authors roll the tokens; here the windows move.
    rolled = (cells[0] + shift) % side
    order = rolled[:, 0] * side + rolled[:, 1]
    shifted = neighbours(cells, side, window, shift)
    visible, offset = (part[:, order][:, :, order] for part in shifted)
    assert torch.equal(cut(visible, side, window), numbers["out/attn_mask_12_6_3"] == 0)
    assert torch.equal(cut(offset, side, window)[3], numbers["out/rel_index_6"].long())
    assert visible.sum() == cut(visible, side, window).sum(), "none outside its window"
    assert neighbours(square_cells(9, torch.device("cpu")), 3, 3, 1)[0].all(), "one window does not shift"


def test_regions_see_those_of_their_window():
    centres = torch.tensor([[0.1, 0.1], [0.4, 0.4], [0.6, 0.1], [0.1, 0.1], [0.9, 0.9]])
    cells = box_cells(torch.cat((centres - 0.05, centres + 0.05), -1)[None], 4)
    assert cells[0].tolist() == [[0, 0], [1, 1], [0, 2], [0, 0], [3, 3]]
    plain, shifted = (neighbours(cells, 4, 2, shift)[0][0].long() for shift in (0, 1))
    assert plain[0].tolist() == [1, 1, 0, 1, 0]
    assert shifted[1].tolist() == [0, 1, 0, 0, 0]
    assert shifted[0].tolist() == [1, 0, 0, 1, 0], "the roll carries the first and the last cell into one window"


def test_regions_are_aligned_with_the_cells_that_they_reach(official):
    numbers = official("dlct")
    height, width = numbers["in/align_size_hw"].tolist()
    boxes = numbers["in/align_boxes_px"] / torch.tensor([width, height, width, height], dtype=torch.float64)
    assert torch.equal(alignment(boxes[None], CELLS[None])[0], numbers["out/align_mask"].bool())
    seen = levels(numbers, None)
    found = alignment(seen.boxes, CELLS[None]) & seen.mask[..., None]
    assert torch.equal(found, numbers["in/aligns"].bool())
    boxes = torch.tensor([[[0.25, 0.0, 0.5, 0.2], [0.9, 0.9, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]])
    found = alignment(boxes, grid_cells(4, 4, like=torch.zeros(1))[None])[0]
    assert [row.nonzero().flatten().tolist() for row in found] == [[1, 2], [15], [15]], "an edge is the next cell's"
