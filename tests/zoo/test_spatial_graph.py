"""The spatial graph of boxes: who lies inside whom, in whole padded batches."""

import pytest
import torch

import zoo
from zoo.layers.aoa import CHILD, NEIGHBOUR, PARENT, AttentionOnAttention, SpatialGraphAttention, spatial_graph
from zoo.layers.attention import SelfAttention


def random_boxes(images, count):
    low = torch.rand(images, count, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sides = torch.rand(images, count, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64) ** 3
    return torch.cat((low, low + sides), -1)


def by_definition(boxes, threshold=0.9):
    """The paper's definition, pair by pair."""

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
    assert 20 < (graph == PARENT).sum() < 400
    assert torch.equal(graph == PARENT, (graph == CHILD).transpose(1, 2))


def test_boxes_apart_contain_each_other_only_as_released(official):
    boxes = official("image_transformer_adjacency")["in/disjoint_f64"][None]
    assert spatial_graph(boxes, mode="official")[0, 1].tolist() == [3, 2, 2, 3, 3]
    assert spatial_graph(boxes)[0, 1].tolist() == [2, 2, 2, 3, 3]


@pytest.mark.parametrize("mode", ["paper", "official"])
@pytest.mark.parametrize("garbage", [0.0, 1e30, float("nan")])
def test_padding_takes_no_part(mode, garbage):
    boxes, mask = random_boxes(3, 8), torch.arange(8) < torch.tensor([8, 5, 1])[:, None]
    graph = spatial_graph(boxes.masked_fill(~mask[..., None], garbage), mask, mode=mode)
    assert torch.equal(graph > 0, mask[:, :, None] & mask[:, None])
    for image, count in enumerate(mask.sum(1).tolist()):
        alone = spatial_graph(boxes[image : image + 1, :count], mode=mode)[0]
        assert torch.equal(graph[image, :count, :count], alone)


def test_units_do_not_matter():
    boxes = random_boxes(2, 20)
    pixels = boxes * torch.tensor([640, 480, 640, 480])
    assert torch.equal(spatial_graph(boxes), spatial_graph(pixels))


def test_equal_boxes_and_boxes_without_area_are_neighbours():
    boxes = torch.tensor([[[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 1.0], [0.5, 0.5, 0.5, 0.6]]])
    assert (spatial_graph(boxes) == NEIGHBOUR).all()


def test_cells_of_a_grid_are_neighbours():
    edges = torch.linspace(0, 1, 8)
    low = torch.cartesian_prod(edges[:-1], edges[:-1])
    high = torch.cartesian_prod(edges[1:], edges[1:])
    assert (spatial_graph(torch.cat((low, high), -1)[None]) == NEIGHBOUR).all()


def test_half_precision_boxes_are_compared_in_single():
    boxes = random_boxes(1, 20).bfloat16()
    assert torch.equal(spatial_graph(boxes), spatial_graph(boxes.float()))


@torch.no_grad()
def test_all_neighbours_leave_one_of_three_attentions():
    torch.manual_seed(0)
    gate = AttentionOnAttention(16)
    wide = SpatialGraphAttention(16, 4, 0.0, gate)
    narrow = SelfAttention(16, 4, causal=False, gate=gate)
    for part, weights in (("query", wide.query), ("key", wide.keys[1]), ("value", wide.values[1])):
        getattr(narrow, part).load_state_dict(weights.state_dict())
    x, mask = torch.rand(2, 5, 16), torch.arange(5) < torch.tensor([5, 3])[:, None]
    graph = torch.full((2, 5, 5), NEIGHBOUR)
    torch.testing.assert_close(wide(x, mask, graph), narrow(x, mask))


def test_a_graph_without_boxes_is_refused():
    tiny = zoo.model_card("image_transformer").tiny
    visual, tokens = zoo.Visual(torch.rand(2, 5, 6)), torch.ones(2, 3, dtype=torch.long)
    model = zoo.create_model("image_transformer", vocab_size=9, visual_dim=6, **tiny)
    with pytest.raises(zoo.ZooError, match="needs the regions' boxes"):
        model(visual, tokens)
    zoo.create_model("image_transformer", vocab_size=9, visual_dim=6, **{**tiny, "spatial": False})(visual, tokens)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"wide_layers": (1, 3)}, "wide_layers names layer 3, but n_encoder_layers is 2"),
        ({"graph": "fast"}, "graph cannot be 'fast'"),
        ({"sub_transformers": 0}, "sub_transformers must be at least 1"),
        ({"threshold": 0}, "threshold must lie above 0"),
        ({"n_heads": 3}, "not a multiple of n_heads 3"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, complaint):
    arguments = {**zoo.model_card("image_transformer").tiny, **changes}
    with pytest.raises(zoo.ZooError, match=complaint):
        zoo.create_model("image_transformer", vocab_size=9, visual_dim=6, **arguments)
