"""GCN-LSTM equals X-modaler's in float64, and its labels of boxes are ReGAT's or the rule's."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

import zoo
from tests.zoo.test_laws import IMAGES, look, tiny, words
from zoo.decoding import Ensemble, beam_search, greedy
from zoo.models.gcn_lstm import regat_labels, spatial_labels
from zoo.weights import from_official, gcn_lstm, read_sizes

close = {"atol": 1e-10, "rtol": 1e-10}
INSIDE, COVERS, OVERLAPS = 1, 2, 3


def load(official, **sizes):
    numbers = official("gcn_lstm", gcn_lstm.zoo_name)
    return numbers, from_official("gcn_lstm", numbers.group("param/"), **sizes).eval()


def encode(numbers, model, mask="in/att_masks"):
    return model.encode_graph(numbers["in/att_feats"], numbers[mask].bool(), numbers["in/relation"])


def test_teacher_forcing(official):
    numbers, model = load(official)
    memory = encode(numbers, model)
    torch.testing.assert_close(memory.features, numbers["out/graph_feats"], **close)
    torch.testing.assert_close(memory.features.mean(1), numbers["out/global_feats"], **close)
    logits, targets = model.decode(memory, numbers["in/tokens_ids"]), numbers["in/target_ids"]
    spoken = targets >= 0
    torch.testing.assert_close(logits[spoken], numbers["out/logits"][spoken], **close)
    torch.testing.assert_close(logits.log_softmax(-1)[spoken], numbers["out/logprobs"][spoken], **close)
    loss = F.cross_entropy(logits[spoken], targets[spoken])
    torch.testing.assert_close(loss, numbers["out/loss_xe"], **close)
    loss.backward()
    expected = gcn_lstm.zoo_tensors(numbers.group("grad/"))
    assert expected.keys() == dict(model.named_parameters()).keys()
    for key, gradient in expected.items():
        torch.testing.assert_close(model.get_parameter(key).grad, gradient, **close, msg=key)


@torch.no_grad()
def test_label_smoothing(official):
    numbers, model = load(official)
    log_probs = model.decode(encode(numbers, model), numbers["in/tokens_ids"]).log_softmax(-1)
    targets = numbers["in/target_ids"]
    spoken = targets >= 0
    target = torch.full_like(log_probs, 0.1 / (model.vocab_size - 1)).scatter(2, targets.clamp(min=0)[..., None], 0.9)
    loss = (target * (target.log() - log_probs)).sum(-1)[spoken].mean()
    torch.testing.assert_close(loss, numbers["out/loss_ls0.1"], **close)


@torch.no_grad()
def test_searches(official):
    """All three hypotheses; the authors rank by plain sums, and go on after the end with word 0."""
    numbers, model = load(official)
    memory, search = encode(numbers, model), {"max_len": numbers.size("max_seq_len"), "bos": 0, "eos": 0}
    found = greedy(model, memory, **search)
    kept = torch.arange(search["max_len"]) < found.lengths
    assert torch.equal(found.tokens[:, 0][kept], numbers["out/greedy_seq"][kept])
    torch.testing.assert_close(found.log_probs[:, 0][kept], numbers["out/greedy_logprobs"][kept], **close)
    beams = beam_search(model, memory, beam_size=3, length_penalty=0.0, **search)
    kept = torch.arange(search["max_len"]) < beams.lengths[..., None]
    assert torch.equal(beams.tokens[kept], numbers["out/beam3_seq"][kept])
    torch.testing.assert_close(beams.log_probs, numbers["out/beam3_logps"], **close)


@torch.no_grad()
def test_released_code_convolves_padding(official):
    numbers, model = load(official)
    tokens, spoken = numbers["in/tokens_ids"], numbers["in/target_ids"] >= 0
    memory = encode(numbers, model, "in/att_masks_pad2")
    log_probs = model.decode(memory, tokens).log_softmax(-1)
    torch.testing.assert_close(log_probs[spoken], numbers["out/logprobs_pad2"][spoken], **close)
    found = greedy(model, memory, max_len=numbers.size("max_seq_len"), bos=0, eos=0)
    kept = torch.arange(numbers.size("max_seq_len")) < found.lengths
    assert torch.equal(found.tokens[:, 0][kept], numbers["out/greedy_seq_pad2"][kept])
    _, sane = load(official, quirks=False)
    masked = sane.decode(encode(numbers, sane, "in/att_masks_pad2"), tokens).log_softmax(-1)
    assert not torch.allclose(masked[spoken], numbers["out/logprobs_pad2"][spoken])


def test_published_size():
    with torch.device("meta"):
        model = zoo.create_model("gcn_lstm", vocab_size=10_200, visual_dim=2048, graph="given")
    assert sum(parameter.numel() for parameter in model.parameters()) == 72_872_942
    assert sum(parameter.numel() for parameter in model.convolution.parameters()) == 12_634_134


def test_sizes_are_read_off_the_shapes(official):
    weights = official("gcn_lstm").group("param/")
    assert read_sizes("gcn_lstm", weights) == {
        "vocab_size": 14,
        "visual_dim": 12,
        "d_model": 11,
        "d_embedding": 10,
        "d_attention": 7,
        "n_labels": 6,
        "graph": "given",
        "quirks": True,
    }
    with pytest.raises(zoo.ZooError, match=r"not a state dict of X-modaler's GCN-LSTM: .*predictor\.logits\.weight"):
        from_official("gcn_lstm", {"encoder.bias": weights["encoder.bias"]})


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
    first = box(50 + 20 * math.cos(angle), 50 + 20 * math.sin(angle))
    found = labels_of(first, box(50, 50))
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


@torch.no_grad()
def test_graphs_are_different_models():
    torch.manual_seed(0)
    spatial = tiny("gcn_lstm", n_labels=13)
    for table in (spatial.convolution.label_bias, spatial.convolution.label_gate):
        torch.nn.init.normal_(table)
    regat = tiny("gcn_lstm", graph="regat", picture=(640, 480))
    regat.load_state_dict(spatial.state_dict())
    paper = tiny("gcn_lstm", n_labels=13, identity=False)
    paper.load_state_dict(spatial.state_dict())
    visual, tokens = look(spatial), words(IMAGES)
    expected = spatial(visual, tokens)
    for other in (regat, paper):
        assert not torch.allclose(other(visual, tokens), expected)
    moved = zoo.Visual(visual.features, visual.mask, visual.boxes.flip(1))
    assert not torch.allclose(spatial(moved, tokens), expected)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"graph": "semantic"}, "graph cannot be 'semantic'"),
        ({"n_labels": 5}, "n_labels must be at least 12 of graph 'spatial', not 5"),
        ({"picture": (640,)}, "picture must be a width and a height in pixels"),
    ],
)
def test_wrong_arguments_are_refused(wrong, message):
    with pytest.raises(zoo.ZooError, match=message):
        tiny("gcn_lstm", **wrong)


@pytest.mark.parametrize(
    ("graph", "message"), [("spatial", "needs the boxes of its regions"), ("given", "labels of this model's graph are")]
)
def test_a_graph_that_cannot_be_found_is_refused(graph, message):
    model = tiny("gcn_lstm", graph=graph)
    with pytest.raises(zoo.ZooError, match=message):
        model.encode(zoo.Visual(look(model).features))


@torch.no_grad()
def test_a_semantic_graph_is_the_matrix_of_its_relations():
    model = tiny("gcn_lstm/semantic")
    visual = look(model)
    relations = torch.tensor([[[0, 1, 4], [2, 0, 3]], [[1, 0, 2], [1, 0, 7]], [[-1, -1, -1], [-1, -1, -1]]])
    labels = torch.zeros(3, visual.features.shape[1], visual.features.shape[1], dtype=torch.long)
    labels[0, 0, 1], labels[0, 2, 0], labels[1, 1, 0] = 4, 3, 7  # of one pair the highest counts
    found = model.encode(replace(visual, relations=relations))
    assert torch.equal(found.features, model.encode_graph(*model.look(visual), labels).features)


@torch.no_grad()
def test_a_semantic_and_a_spatial_model_are_decoded_as_one():
    semantic, spatial = tiny("gcn_lstm/semantic"), tiny("gcn_lstm")
    for model in (semantic, spatial):
        torch.nn.init.normal_(model.convolution.label_bias)
    fused = Ensemble([semantic, spatial], [0.7, 0.3])
    assert fused.visual == semantic.visual
    visual, tokens = look(fused), words(IMAGES)
    expected = 0.7 * semantic(visual, tokens).softmax(-1) + 0.3 * spatial(visual, tokens).softmax(-1)
    torch.testing.assert_close(fused(visual, tokens).exp(), expected, **close)
    with pytest.raises(zoo.ZooError, match="one kind of visual input"):
        Ensemble([semantic, tiny("sgae/graph")])
