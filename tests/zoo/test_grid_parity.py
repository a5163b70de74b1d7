"""GET, RSTNet and DLCT equal their authors' code in float64."""

from dataclasses import replace

import pytest
import torch

import zoo
from zoo.decoding import beam_search, greedy
from zoo.layers.geometry import grid_cells
from zoo.models.dlct import alignment
from zoo.weights import from_official, grid

CELLS = grid_cells(7, 7, like=torch.zeros(1, dtype=torch.float64))
close = {"atol": 1e-10, "rtol": 1e-10}


def load(official, name, **sizes):
    numbers = official(name, grid.zoo_name)
    return numbers, from_official(name, numbers.group("param/"), n_heads=numbers.size("h"), **sizes).eval()


def regions(numbers):
    features = numbers["in/regions"]
    return zoo.Visual(features, features.sum(-1) != 0)


def check_loss_and_gradients(numbers, model, log_probs):
    tokens, pad = numbers["in/tokens"], numbers.size("pad")
    loss = torch.nn.functional.nll_loss(log_probs[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=pad)
    torch.testing.assert_close(loss, numbers["out/loss_nll_ignorepad"], **close)
    loss.backward()
    expected = grid.zoo_tensors(numbers.group("grad/"))
    assert expected.keys() == {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    for name, gradient in expected.items():
        torch.testing.assert_close(model.get_parameter(name).grad, gradient, **close, msg=name)


@torch.no_grad()
def check_stepwise(numbers, model, memory):
    """What the authors' decoder says word by word; the words before padding alone count."""
    tokens, state, found = numbers["in/tokens"], model.start(memory), []
    for position in range(tokens.shape[1]):
        logits, state = model.step(tokens[:, position], state)
        found.append(logits.log_softmax(-1))
    spoken = tokens != numbers.size("pad")
    torch.testing.assert_close(torch.stack(found, 1)[spoken], numbers["out/forced_step_logprobs"][spoken], **close)


@torch.no_grad()
def check_searches(numbers, model, memory):
    """The authors' greedy search goes on after the end with all numbers zero; their beams are ranked by plain sums."""
    steps, ends = numbers.size("steps"), {"bos": numbers.size("bos"), "eos": numbers.size("eos")}
    tokens, log_probs = numbers["out/greedy_seq"], numbers["out/greedy_logprobs_full"]
    found = greedy(model, memory, max_len=steps, **ends)
    spoken = torch.arange(steps) < found.lengths
    assert torch.equal(found.tokens[:, 0][spoken], tokens[spoken])
    chosen = log_probs.gather(2, tokens[..., None])[..., 0]
    before_end = spoken & (tokens != ends["eos"])
    torch.testing.assert_close(found.log_probs[:, 0][before_end], chosen[before_end], **close)
    beams = beam_search(model, memory, beam_size=3, max_len=steps, length_penalty=0.0, **ends)
    kept = torch.arange(steps) < beams.lengths[..., None]
    assert torch.equal(beams.tokens[kept], numbers["out/beam3_seq"][kept])
    torch.testing.assert_close(beams.log_probs, numbers["out/beam3_logps"], **close)


def test_get(official):
    numbers, model = load(official, "get")
    memory = model.encode(regions(numbers))
    torch.testing.assert_close(memory.features, numbers["out/encoder"], **close)
    assert torch.equal(~memory.mask, numbers["out/encoder_mask"][:, 0, 0])
    log_probs = model.decode(memory, numbers["in/tokens"]).log_softmax(-1)
    words = numbers["in/tokens"] != numbers.size("pad")
    torch.testing.assert_close(log_probs[words], numbers["out/logprobs"][words], **close)
    check_loss_and_gradients(numbers, model, log_probs)
    check_stepwise(numbers, model, memory)
    check_searches(numbers, model, memory)


@torch.no_grad()
def test_get_without_fusion(official):
    numbers = official("get", grid.zoo_name)
    weights = {key: tensor for key, tensor in numbers.group("param/").items() if ".rnn." not in key}
    model = from_official("get/no-fusion", weights, n_heads=numbers.size("h")).eval()
    memory = model.encode(regions(numbers))
    torch.testing.assert_close(memory.features, numbers["out/nolstm_encoder"], **close)
    words = numbers["in/tokens"] != numbers.size("pad")
    log_probs = model.decode(memory, numbers["in/tokens"]).log_softmax(-1)
    torch.testing.assert_close(log_probs[words], numbers["out/nolstm_logprobs"][words], **close)


def test_get_masks_padding_where_the_released_code_does_not():
    arguments = {**zoo.model_card("get").tiny, "vocab_size": 9, "visual_dim": 6}
    features, tokens = torch.rand(1, 5, 6).double(), torch.ones(1, 3, dtype=torch.long)
    padded = zoo.Visual(features, torch.tensor([[True, True, True, False, False]]))
    changed = {}
    for quirks in (False, True):
        torch.manual_seed(0)
        model = zoo.create_model("get", quirks=quirks, **arguments).double().eval()
        torch.nn.init.uniform_(model.input.norm.weight)  # with gains of one, some embedded regions sum to zero
        changed[quirks] = not torch.allclose(model(padded, tokens), model(zoo.Visual(features[:, :3]), tokens))
    assert changed == {False: False, True: True}


def test_published_size_of_rstnet():
    """The captioner, and the language model: without tables of positions, and its pooler and head, which are unused."""
    bert = {"vocab_size": 30_522, "hidden_size": 768, "num_hidden_layers": 12}
    with torch.device("meta"):
        model = zoo.create_model("rstnet", vocab_size=10_201, visual_dim=2048, bert=bert)
    signal = sum(parameter.numel() for parameter in model.language.parameters())
    assert sum(parameter.numel() for parameter in model.parameters()) - signal == 38_071_816 - 28_160
    assert signal == 118_290_649 - 28_160 - (768 * 768 + 768) - (512 * 10_201 + 10_201)
    assert not any(parameter.requires_grad for parameter in model.language.parameters())


@pytest.mark.parametrize(
    ("name", "parameters"), [("get", 37_279_744), ("get/no-fusion", 35_178_496), ("dlct", 63_036_424)]
)
def test_published_sizes(name, parameters):
    """The authors' count has their frozen table of positions, which is no parameter here."""
    with torch.device("meta"):
        model = zoo.create_model(name, vocab_size=10_201, visual_dim=2048)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters - 28_160


def load_rstnet(official, **sizes):
    numbers = official("rstnet", grid.zoo_name)
    weights = numbers.group("param/")
    bert = {**grid.read_sizes(weights)["bert"], "num_attention_heads": numbers.size("bert_num_attention_heads")}
    return numbers, from_official("rstnet", weights, n_heads=numbers.size("h"), bert=bert, **sizes).eval()


def grids(numbers):
    features = numbers["in/grids"]
    return zoo.Visual(features, boxes=CELLS.expand(len(features), -1, -1))


def test_rstnet(official):
    """Teacher forcing with the leak: log-probabilities, loss and gradients of the authors' training."""
    numbers, model = load_rstnet(official)
    memory = model.encode(grids(numbers))
    features, code = memory.features.chunk(2, -1)
    assert torch.equal(~memory.mask, numbers["out/encoder_mask"][:, 0, 0])
    torch.testing.assert_close(code[0], numbers["buffer/grid_pos"], **close)
    torch.testing.assert_close(features[memory.mask], numbers["out/encoder"][memory.mask], **close)
    tokens = numbers["in/tokens"]
    spoken = tokens != numbers.size("pad")
    torch.testing.assert_close(model.language(tokens)[spoken], numbers["out/language_feature"][spoken], **close)
    log_probs = model.decode(memory, tokens).log_softmax(-1)
    torch.testing.assert_close(log_probs[spoken], numbers["out/logprobs"][spoken], **close)
    check_loss_and_gradients(numbers, model, log_probs)


@pytest.mark.parametrize("leak", [False, True])
@torch.no_grad()
def test_rstnet_word_by_word(official, leak):
    """Decoding has no leak; without it, teacher forcing is what is decoded."""
    numbers, model = load_rstnet(official, leak=leak)
    memory = model.encode(grids(numbers))
    check_stepwise(numbers, model, memory)
    check_searches(numbers, model, memory)
    if not leak:
        tokens = numbers["in/tokens"]
        spoken = tokens != numbers.size("pad")
        log_probs = model.decode(memory, tokens).log_softmax(-1)
        torch.testing.assert_close(log_probs[spoken], numbers["out/forced_step_logprobs"][spoken], **close)


def levels(numbers):
    features = numbers["in/regions"]
    return zoo.Visual(
        features, features.sum(-1) != 0, numbers["in/boxes"], grid=numbers["in/grids"].unflatten(1, (7, 7))
    )


def test_dlct(official):
    numbers, model = load(official, "dlct")
    seen = levels(numbers)
    memory = model.encode(seen)
    features, code = memory.features.chunk(2, -1)
    assert torch.equal(~memory.mask, numbers["out/encoder_mask"][:, 0, 0])
    torch.testing.assert_close(code[0, -49:], numbers["buffer/grid_pos"], **close)
    torch.testing.assert_close(code[:, :-49][seen.mask], numbers["out/region_pos"][seen.mask], **close)
    torch.testing.assert_close(features[memory.mask], numbers["out/encoder"][memory.mask], **close)
    tokens = numbers["in/tokens"]
    spoken = tokens != numbers.size("pad")
    log_probs = model.decode(memory, tokens).log_softmax(-1)
    torch.testing.assert_close(log_probs[spoken], numbers["out/logprobs"][spoken], **close)
    check_loss_and_gradients(numbers, model, log_probs)
    check_stepwise(numbers, model, memory)
    check_searches(numbers, model, memory)


def test_regions_are_aligned_with_the_cells_that_they_reach(official):
    numbers = official("dlct", grid.zoo_name)
    height, width = numbers["in/align_size_hw"].tolist()
    boxes = numbers["in/align_boxes_px"] / torch.tensor([width, height, width, height], dtype=torch.float64)
    assert torch.equal(alignment(boxes[None], CELLS[None])[0], numbers["out/align_mask"].bool())
    seen = levels(numbers)
    found = alignment(seen.boxes, CELLS[None]) & seen.mask[..., None]
    assert torch.equal(found, numbers["in/aligns"].bool())


@torch.no_grad()
def test_a_finer_grid_is_pooled(official):
    numbers, model = load(official, "dlct")
    seen = levels(numbers)
    finer = seen.grid.repeat_interleave(2, 1).repeat_interleave(2, 2)
    finer = finer + torch.tensor([[0.25, -0.25], [-0.25, 0.25]]).repeat(7, 7)[..., None]
    found, expected = (model.encode(each).features for each in (replace(seen, grid=finer), seen))
    torch.testing.assert_close(found, expected, **close)
