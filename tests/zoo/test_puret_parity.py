"""PureT equals its authors' code in float64: windows, encoder, log-probabilities, losses, gradients, decoding."""

import pytest
import torch
from torch.nn import functional as F

import zoo
from zoo.decoding import beam_search, greedy
from zoo.models.puret import box_cells, neighbours, square_cells
from zoo.weights import from_official, puret

close = {"atol": 1e-10, "rtol": 1e-10}


@pytest.fixture
def numbers(official):
    return official("puret")


@pytest.fixture
def model(numbers):
    return load(numbers)


def load(numbers, name="puret", **arguments):
    weights = numbers.group("param/") | numbers.group("buffer/")
    return from_official(name, weights, **arguments).eval()


def cell_boxes(side):
    """Boxes (1, L, 4) of the cells of a grid, row by row."""
    row, column = square_cells(side * side, torch.device("cpu")).double().unbind(-1)
    return torch.stack((column, row, column + 1, row + 1), -1) / side


def look(numbers):
    features, mask = numbers["in/att_feats"], numbers["in/att_mask"].bool()
    return zoo.Visual(features, mask, cell_boxes(numbers.size("grid")).expand(len(features), -1, -1))


def cut(square, side, window):
    """A relation (1, L, L) of cells as relations (windows, cells, cells) within the windows of a plain grid."""
    row, column = square_cells(side * side, torch.device("cpu"))[0].unbind(-1)
    number = row // window * (side // window) + column // window
    inside = [torch.nonzero(number == each).flatten() for each in number.unique()]
    return torch.stack([square[0][places][:, places] for places in inside])


def test_the_released_windows(numbers):
    side, window, shift = 12, 6, 3
    cells = square_cells(side * side, torch.device("cpu"))
    assert torch.equal(cells, box_cells(cell_boxes(side), side))
    plain = neighbours(cells, side, window, 0)
    assert torch.equal(cut(plain.offset, side, window)[0], numbers["out/rel_index_6"].long())
    assert cut(plain.visible, side, window).all()
    # The authors roll the tokens; here the windows move.
    rolled = (cells[0] + shift) % side
    order = rolled[:, 0] * side + rolled[:, 1]
    shifted = neighbours(cells, side, window, shift)
    visible, offset = (part[:, order][:, :, order] for part in shifted)
    assert torch.equal(cut(visible, side, window), numbers["out/attn_mask_12_6_3"] == 0)
    assert torch.equal(cut(offset, side, window)[3], numbers["out/rel_index_6"].long())
    assert visible.sum() == cut(visible, side, window).sum(), "none outside its window"


def test_one_window_over_the_whole_grid_does_not_shift():
    cells = square_cells(9, torch.device("cpu"))
    assert neighbours(cells, 3, 3, 1).visible.all()


@pytest.mark.parametrize("kind", ["regions", "grid"])
def test_the_encoder(numbers, kind):
    model, visual = load(numbers, visual_kind=kind), look(numbers)
    if kind == "grid":
        visual = zoo.Visual(visual.features)
    layers = []
    for layer in model.encoder_layers:
        layer.register_forward_hook(lambda *found: layers.append(found[2]))
    memory = model.encode(visual)
    torch.testing.assert_close(model.input(visual.features), numbers["out/att_embed"], **close)
    for found, expected in zip(layers, ("out/encoder_layer0", "out/encoder_layer1"), strict=True):
        torch.testing.assert_close(found, numbers[expected], **close)
    torch.testing.assert_close(memory.features, numbers["out/encoder_att"], **close)
    torch.testing.assert_close(memory.extra["global"], numbers["out/encoder_global"], **close)


def test_log_probabilities_losses_and_gradients(numbers, model):
    tokens, target = numbers["in/input_seq"], numbers["in/target_seq"]
    log_probs = model(look(numbers), tokens).log_softmax(-1)
    spoken = target >= 0
    torch.testing.assert_close(log_probs[spoken], numbers["out/logprobs"][spoken], **close)
    torch.testing.assert_close(log_probs, numbers["out/incremental_logprobs"], **close)
    loss = F.nll_loss(log_probs[spoken], target[spoken])
    torch.testing.assert_close(loss, numbers["out/loss_xe"], **close)
    smoothing = numbers.size("label_smoothing")
    wanted = torch.full_like(log_probs[spoken], smoothing / (model.vocab_size - 1))
    wanted.scatter_(1, target[spoken][:, None], 1 - smoothing)
    smoothed = (wanted * (wanted.log() - log_probs[spoken])).sum(-1).mean()
    torch.testing.assert_close(smoothed, numbers["out/loss_ls0.1"], **close)

    loss.backward()
    found = {key: parameter.grad for key, parameter in model.named_parameters()}
    torch.testing.assert_close(found, puret.zoo_tensors(numbers.group("grad/")), **close)


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
    tokens, memory = numbers["out/beam3_seq"], model.encode(look(numbers))
    found = beam_search(model, memory, beam_size=3, max_len=tokens.shape[1], bos=0, eos=0, length_penalty=0.0)
    assert torch.equal(found.tokens[:, 0], tokens)
    torch.testing.assert_close(found.log_probs[:, 0], numbers["out/beam3_logprobs"], **close)


def test_the_global_token_once_is_another_model(numbers):
    once = load(numbers, "puret/global-once").encode(look(numbers))
    assert not torch.allclose(once.extra["global"], numbers["out/encoder_global"])


def test_published_size():
    """The authors count their frozen table of 100 positions, which is no parameter here."""
    with torch.device("meta"):
        model = zoo.create_model("puret", vocab_size=9_488, visual_dim=1536, max_len=99)
    table = model.embedding.positions.table.numel()
    assert table == 51_200
    assert sum(parameter.numel() for parameter in model.parameters()) + table == 34_212_968
