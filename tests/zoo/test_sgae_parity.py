"""SGAE equals the authors' model in float64, with and without the image graph."""

from dataclasses import replace

import pytest
import torch

import zoo
from tests.zoo.test_laws import look, tiny
from zoo.decoding import beam_search, greedy
from zoo.weights import from_official, sgae

close = {"atol": 1e-10, "rtol": 1e-10}
both = pytest.mark.parametrize(("graph", "suffix"), [("given", ""), ("none", "_norela")])


def load(official, graph):
    numbers = official("sgae", sgae.zoo_name)
    return numbers, from_official("sgae", numbers.group("param/"), graph=graph).eval()


def encode(numbers, model):
    """Their batches are cut to the most regions of an image; padding is told by masks, and nodes stand without gaps."""
    mask = numbers["in/att_masks"].bool()
    mask = mask[:, : mask.sum(1).max()]
    features, image = numbers["in/att_feats"][:, : mask.shape[1]], numbers["in/fc_feats"]
    if model.graph is None:
        return model.encode_regions(features, mask, image)
    relations = numbers["in/rela_matrix"].long().masked_fill(~numbers["in/rela_masks"].bool()[..., None], -1)
    attributes = numbers["in/attr_matrix"].long().masked_fill(~numbers["in/attr_masks"].bool(), -1)
    return model.encode_graph(features, mask, relations, attributes, image)


@both
def test_teacher_forcing(official, graph, suffix):
    numbers, model = load(official, graph)
    memory = encode(numbers, model)
    valid = memory.mask
    if graph == "given":
        theirs = numbers["out/graph_masks"].bool()
        assert torch.equal(valid.sum(1), theirs.sum(1))
        torch.testing.assert_close(memory.features[valid], numbers["out/graph_feats"][theirs], **close)
    else:
        theirs = valid
    torch.testing.assert_close(memory.extra["entries"][valid], numbers[f"out/dictionary{suffix}"][theirs], **close)
    labels, masks = numbers["in/labels"], numbers["in/masks"]
    log_probs = model.decode(memory, labels[:, :-1]).log_softmax(-1)
    expected, spoken = numbers[f"out/logprobs{suffix}"], masks[:, 1:].bool()
    torch.testing.assert_close(log_probs[spoken], expected[spoken], **close)
    loss = -log_probs.gather(2, labels[:, 1:, None])[..., 0][spoken].mean()
    torch.testing.assert_close(loss, numbers[f"out/loss_xe{suffix}"], **close)
    loss.backward()
    gradients = sgae.zoo_tensors(numbers.group(f"grad{suffix}/"))
    assert gradients.keys() == dict(model.named_parameters()).keys()
    for key, gradient in gradients.items():
        torch.testing.assert_close(model.get_parameter(key).grad, gradient, **close, msg=key)


@both
@torch.no_grad()
def test_searches(official, graph, suffix):
    """Their beam hardly ever says the last word, and rounds its log-probabilities to single precision."""
    numbers, model = load(official, graph)
    memory, search = encode(numbers, model), {"max_len": numbers.size("seq_length"), "bos": 0, "eos": 0}
    found = greedy(model, memory, **search)
    kept = torch.arange(search["max_len"]) < found.lengths
    assert torch.equal(found.tokens[:, 0][kept], numbers[f"out/greedy_seq{suffix}"][kept])
    torch.testing.assert_close(found.log_probs[:, 0][kept], numbers[f"out/greedy_logprobs{suffix}"][kept], **close)
    banned = (numbers.size("unk"),)
    beams = beam_search(model, memory, beam_size=3, length_penalty=0.0, banned=banned, release_finished=True, **search)
    assert torch.equal(beams.tokens, numbers[f"out/beam3_all_seq{suffix}"])
    torch.testing.assert_close(beams.scores, numbers[f"out/beam3_all_p{suffix}"], atol=1e-6, rtol=0.0)


def test_published_size():
    """The released 116,458,982 without 43,048,050 of sentence graphs, and with the dictionary."""
    with torch.device("meta"):
        model = zoo.create_model("sgae", vocab_size=10_370, visual_dim=2048, graph="given")
    assert sum(parameter.numel() for parameter in model.parameters()) == 116_458_982 - 43_048_050 + 10_000_000


@torch.no_grad()
def test_a_row_without_words_is_no_node():
    model = tiny("sgae", graph="given")
    visual = look(model)
    relations = torch.full((3, 1, 3), -1)
    attributes = torch.tensor([[[0, 5]], [[1, -1]], [[-1, -1]]])
    memory = model.encode_graph(visual.features, visual.mask, relations, attributes)
    assert memory.mask[:, -1].tolist() == [True, False, False]
    assert memory.features.isfinite().all()


@torch.no_grad()
def test_words_of_graphs_alone_are_read_and_never_said():
    model = tiny("sgae/graph", n_graph_words=2)
    visual, words = look(model), model.vocab_size
    relations = torch.tensor([[[0, 1, words]], [[0, 1, words + 1]], [[0, 1, 3]]])
    memory = model.encode(replace(visual, relations=relations))
    assert memory.features.isfinite().all()
    other = model.encode(replace(visual, relations=relations.roll(1, 0)))
    assert not torch.equal(memory.features[:, 0], other.features[:, 0])
    assert model.decode(memory, torch.ones(3, 2, dtype=torch.long)).shape[-1] == words


def test_what_is_missing_is_said():
    with pytest.raises(zoo.ZooError, match="graph cannot be 'semantic'"):
        tiny("sgae", graph="semantic")
    model = tiny("sgae", graph="given")
    with pytest.raises(zoo.ZooError, match="the graph of this model is given"):
        model.encode(replace(look(model), relations=None))
    with pytest.raises(zoo.ZooError, match="n_graph_words cannot be 3 of graph 'none'"):
        tiny("sgae", n_graph_words=3)
    with pytest.raises(zoo.ZooError, match="n_entries must be at least 1"):
        tiny("sgae", n_entries=0)
