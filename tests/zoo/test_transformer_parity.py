"""The transformer and the meshed-memory transformer equal their authors' code in float64."""

import pytest
import torch

import zoo
from zoo.decoding import beam_search, greedy
from zoo.weights import from_official, m2, transformer

close = {"atol": 1e-10, "rtol": 1e-10}


def load_transformer(official):
    numbers = official("transformer", transformer.zoo_name)
    weights = numbers.group("param/") | numbers.group("buffer/")
    return numbers, from_official("transformer", weights, n_heads=numbers.size("num_att_heads")).eval()


def load_m2(official):
    numbers = official("m2", m2.zoo_name)
    weights = numbers.group("param/") | numbers.group("buffer/")
    return numbers, from_official("m2", weights, n_heads=numbers.size("h")).eval()


def look(numbers):
    return zoo.Visual(numbers["in/att_feats"], numbers["in/att_masks"].bool())


def test_transformer(official):
    numbers, model = load_transformer(official)
    memory = model.encode(look(numbers))
    mask = memory.mask[:, :6]  # the authors cut the batch to its longest image
    torch.testing.assert_close(memory.features[:, :6][mask], numbers["out/encoder"][mask], **close)
    labels, kept = numbers["in/labels"], numbers["in/masks"][:, 1:]
    log_probs = model.decode(memory, labels[:, :-1]).log_softmax(-1)
    spoken = kept.bool()
    torch.testing.assert_close(log_probs[spoken], numbers["out/logprobs"][spoken], **close)

    loss = -(log_probs.gather(2, labels[:, 1:, None])[..., 0] * kept).sum() / kept.sum()
    torch.testing.assert_close(loss, numbers["out/loss_xe"], **close)
    loss.backward(retain_graph=True)
    numbers.check_gradients(model, group="grad/")
    target = torch.full_like(log_probs, 0.2 / (model.vocab_size - 1)).scatter(2, labels[:, 1:, None], 0.8)
    smoothed = ((target * (target.log() - log_probs)).sum(-1) * kept).sum() / kept.sum()
    torch.testing.assert_close(smoothed, numbers["out/loss_ls0.2"], **close)


@torch.no_grad()
def test_transformer_on_several_captions_and_without_padding(official):
    numbers, model = load_transformer(official)
    tokens, expected = numbers["in/labels_2perimg"].flatten(0, 1), numbers["out/logprobs_2perimg"]
    # What follows the end sees words of padding, which the authors hide; nothing asks for it.
    spoken = torch.arange(tokens.shape[1]) <= (tokens > 0).sum(1, keepdim=True)
    log_probs = model(look(numbers), tokens).log_softmax(-1)
    torch.testing.assert_close(log_probs[spoken], expected[spoken], **close)
    first = zoo.Visual(numbers["in/att_feats"][:1, :6])
    log_probs = model(first, numbers["in/labels"][:1, :-1]).log_softmax(-1)
    torch.testing.assert_close(log_probs, numbers["out/logprobs_image0_nomask"], **close)


def test_transformer_greedy(official):
    numbers, model = load_transformer(official)
    tokens, log_probs = numbers["out/greedy_seq"], numbers["out/greedy_logprobs_full"]
    found = greedy(model, model.encode(look(numbers)), max_len=tokens.shape[1], bos=0, eos=0)
    assert torch.equal(found.tokens[:, 0], tokens)
    chosen = log_probs.gather(2, tokens[..., None])[..., 0]
    torch.testing.assert_close(found.log_probs[:, 0], chosen, **close)


@pytest.mark.parametrize("suppressed", [False, True])
def test_transformer_beam_search(official, suppressed):
    """The authors rank by plain sums, and what is finished leaves its place."""
    numbers, model = load_transformer(official)
    tokens = numbers["out/beam3_seq_suppressUNK" if suppressed else "out/beam3_seq"]
    found = beam_search(
        model,
        model.encode(look(numbers)),
        beam_size=3,
        max_len=tokens.shape[1],
        bos=0,
        eos=0,
        length_penalty=0.0,
        banned=(numbers.size("unk"),) if suppressed else (),
        release_finished=True,
    )
    assert torch.equal(found.tokens[:, 0], tokens)
    if not suppressed:
        torch.testing.assert_close(found.scores, numbers["out/beam3_all_p"], **close)


def test_m2(official):
    numbers, model = load_m2(official)
    memory = model.encode(zoo.Visual(numbers["in/regions_zero_padded"]))
    levels = memory.features.unflatten(-1, (numbers.size("N"), -1)).transpose(1, 2)
    torch.testing.assert_close(levels, numbers["out/encoder_levels"], **close)
    assert torch.equal(~memory.mask, numbers["out/encoder_mask"][:, 0, 0])
    tokens, pad = numbers["in/tokens"], numbers.size("pad")
    log_probs = model.decode(memory, tokens).log_softmax(-1)
    words = tokens != pad
    torch.testing.assert_close(log_probs[words], numbers["out/logprobs"][words], **close)
    loss = torch.nn.functional.nll_loss(log_probs[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=pad)
    torch.testing.assert_close(loss, numbers["out/loss_nll_ignorepad"], **close)
    loss.backward()
    numbers.check_gradients(model, group="grad/")


def test_m2_beam_search(official):
    """All three hypotheses. The authors' search goes by plain sums and keeps what is finished."""
    numbers, model = load_m2(official)
    expected = numbers["out/beam3_seq"]
    found = beam_search(
        model,
        model.encode(zoo.Visual(numbers["in/regions_zero_padded"])),
        beam_size=3,
        max_len=numbers.size("max_len"),
        bos=numbers.size("bos"),
        eos=numbers.size("eos"),
        length_penalty=0.0,
    )
    assert torch.equal(found.tokens, expected)
    torch.testing.assert_close(found.log_probs, numbers["out/beam3_logps"], **close)


def test_m2_masks_padding_where_the_released_code_does_not():
    arguments = {**zoo.model_card("m2").tiny, "vocab_size": 9, "visual_dim": 6}
    features, tokens = torch.rand(1, 5, 6).double(), torch.ones(1, 3, dtype=torch.long)
    padded = zoo.Visual(features, torch.tensor([[True, True, True, False, False]]))
    changed = {}
    for quirks in (False, True):
        torch.manual_seed(0)
        model = zoo.create_model("m2", quirks=quirks, **arguments).double().eval()
        changed[quirks] = not torch.allclose(model(padded, tokens), model(zoo.Visual(features[:, :3]), tokens))
    assert changed == {False: False, True: True}


def test_m2_initialises_as_paper_or_as_released_code():
    torch.manual_seed(0)
    sane, released = (zoo.create_model("m2", vocab_size=9, visual_dim=6, quirks=quirks) for quirks in (False, True))
    memory = sane.encoder_layers[0].mixer
    assert memory.memory_keys.std().item() == pytest.approx(1 / 64, rel=0.05)
    assert memory.memory_values.std().item() == pytest.approx(1 / 40, rel=0.05)
    first = sane.embedding.positions(torch.tensor([0]))[0]
    torch.testing.assert_close(first[:2], torch.tensor([0.8414710, 0.5403023]))
    # Xavier's bound, for a matrix of 55 x 512 and for slots of 1 x 40 x 512.
    assert released.embedding.positions.table.abs().max() <= (6 / (55 + 512)) ** 0.5
    assert released.encoder_layers[0].mixer.memory_keys.abs().max() <= (6 / (41 * 512)) ** 0.5


@pytest.mark.parametrize(
    ("name", "words", "parameters"),
    [
        ("transformer", 9_487, 54_914_832),
        ("transformer", 10_369, 55_818_882),
        ("m2", 10_200, 38_439_424 - 28_160),  # the table of positions is no parameter here
    ],
)
def test_published_sizes(name, words, parameters):
    """The authors' vocabularies have one more entry than words, but for M2's, which counts all of its 10,201."""
    with torch.device("meta"):
        model = zoo.create_model(name, vocab_size=words + 1, visual_dim=2048)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
