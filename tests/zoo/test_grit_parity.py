"""GRIT's caption head equals its authors' code in float64, with each kind of heads."""

import pytest
import torch

import zoo
from tests.zoo.test_laws import IMAGES, look, tiny, words
from zoo.decoding import beam_search, greedy
from zoo.weights import from_official, grit, read_sizes

close = {"atol": 1e-10, "rtol": 1e-10}
KINDS = {"grit": "", "grit/sequential": "_sequential", "grit/concatenated": "_concat"}


def weights(numbers, kind, group="param"):
    """Of one kind of heads; all of them have the same network of the grid."""
    shared = {key: tensor for key, tensor in numbers.group(f"{group}/").items() if key.startswith("grid_net.")}
    return {**shared, **numbers.group(f"{group}{kind}/")}


def load(official, name):
    numbers = official("grit", grit.zoo_name)
    return numbers, from_official(name, weights(numbers, KINDS[name]), n_heads=numbers.size("n_heads")).eval()


def seen(numbers):
    """Each image alone, since cells that the authors pad are not there: a grid has no mask here."""
    for image, hidden in enumerate(numbers["in/gri_mask"][:, 0, 0]):
        cells = numbers["in/gri_feat"][image, ~hidden]
        yield image, zoo.Visual(numbers["in/reg_feat"][image : image + 1], grid=cells[None, :, None])


@pytest.mark.parametrize("name", KINDS)
def test_teacher_forcing(official, name):
    (numbers, model), kind = load(official, name), KINDS[name]
    tokens, pad = numbers["in/tokens"], numbers.size("pad")
    log_probs = torch.cat([model(visual, tokens[image : image + 1]) for image, visual in seen(numbers)]).log_softmax(-1)
    spoken = tokens != pad
    torch.testing.assert_close(log_probs[spoken], numbers[f"out/logprobs{kind}"][spoken], **close)
    loss = torch.nn.functional.nll_loss(log_probs[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=pad)
    torch.testing.assert_close(loss, numbers[f"out/loss_xe{kind}"], **close)
    loss.backward()
    expected = {grit.zoo_name(key): gradient for key, gradient in numbers.group(f"grad{kind}/").items()}
    assert expected.keys() == dict(model.named_parameters()).keys()
    for key, gradient in expected.items():
        torch.testing.assert_close(model.get_parameter(key).grad, gradient, **close, msg=key)


@torch.no_grad()
def test_network_of_the_grid(official):
    numbers, model = load(official, "grit")
    for image, visual in seen(numbers):
        cells = model.encode(visual).extra["grid"][0]
        torch.testing.assert_close(cells, numbers["out/grid_levels"][image, -1, : len(cells)], **close)


@pytest.mark.parametrize("name", KINDS)
@torch.no_grad()
def test_searches(official, name):
    """All three hypotheses; the authors rank by plain sums, and go on after the end with word 0."""
    (numbers, model), kind = load(official, name), KINDS[name]
    search = {"max_len": numbers.size("beam_len"), "bos": numbers.size("bos"), "eos": numbers.size("eos")}
    places = torch.arange(search["max_len"])
    for image, visual in seen(numbers):
        memory = model.encode(visual)
        first = greedy(model, memory, **search)
        kept = places < first.lengths
        assert torch.equal(first.tokens[0][kept], numbers[f"out/greedy_seq{kind}"][image : image + 1][kept])
        expected = numbers[f"out/greedy_logps{kind}"][image : image + 1]
        torch.testing.assert_close(first.log_probs[0][kept], expected[kept], **close)
        beams = beam_search(model, memory, beam_size=3, length_penalty=0.0, **search)
        kept = places < beams.lengths[0, :, None]
        assert torch.equal(beams.tokens[0][kept], numbers[f"out/beam3_seq{kind}"][image][kept])
        torch.testing.assert_close(beams.log_probs[0], numbers[f"out/beam3_logps{kind}"][image], **close)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("grit", 39_372_800 - 1_574_400), ("grit/sequential", 36_224_000), ("grit/concatenated", 33_069_056)],
)
def test_published_sizes(name, parameters):
    """The authors' counts have their frozen table of positions, and in parallel heads a gate that is never used."""
    with torch.device("meta"):
        model = zoo.create_model(name, vocab_size=10_201, visual_dim=512, grid_dim=1024, embed_regions=False)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters - 28_160


def test_sizes_are_read_off_the_shapes(official):
    official_names = weights(official("grit"), "_concat")
    assert read_sizes("grit", {f"module.{key}": tensor for key, tensor in official_names.items()}) == {
        "vocab_size": 15,
        "visual_dim": 12,
        "grid_dim": 10,
        "d_model": 12,
        "d_ff": 20,
        "max_len": 11,
        "n_encoder_layers": 2,
        "n_decoder_layers": 2,
        "heads": "concatenated",
        "embed_regions": False,
        "quirks": True,
    }


def test_weights_of_other_heads_are_refused(official):
    with pytest.raises(zoo.ZooError, match="weights of sequential heads, and grit has parallel ones") as caught:
        from_official("grit", weights(official("grit"), "_sequential"))
    assert caught.value.hint == "choose grit/sequential"
    with pytest.raises(zoo.ZooError, match=r"not a state dict of GRIT: .*grid_net\.fc\.weight"):
        from_official("grit", {"detector.weight": torch.ones(1)})


@torch.no_grad()
def test_a_gate_of_each_stream_is_another_model():
    torch.manual_seed(0)
    shared = tiny("grit")
    apart = tiny("grit", shared_gate=False)
    state = shared.state_dict()
    twice = {key.replace("gates.0", "gates.1"): tensor for key, tensor in state.items()}
    apart.load_state_dict({**state, **twice})
    visual, tokens = look(shared), words(IMAGES)
    torch.testing.assert_close(apart(visual, tokens), shared(visual, tokens))
    apart.decoder_layers[0].gates[1].bias.add_(1.0)
    assert not torch.allclose(apart(visual, tokens), shared(visual, tokens))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"heads": "none"}, "heads cannot be 'none'"),
        ({"embed_regions": False}, "regions of 6 channels need to be embedded in d_model 16"),
    ],
)
def test_wrong_arguments_are_refused(wrong, message):
    with pytest.raises(zoo.ZooError, match=message):
        tiny("grit", **wrong)


def test_regions_alone_are_refused():
    model = tiny("grit")
    with pytest.raises(zoo.ZooError, match="needs regions and a grid"):
        model.encode(zoo.Visual(look(model).features))
