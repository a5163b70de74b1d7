"""The LSTM captioners equal ImageCaptioning.pytorch: probabilities, losses, gradients and captions, in float64."""

import pytest
import torch
from torch.nn import functional as F

import zoo
from zoo.decoding import beam_search, greedy
from zoo.weights import from_official, read_sizes
from zoo.weights.recurrent import zoo_tensors

close = {"atol": 1e-10, "rtol": 1e-10}
MODELS = {
    # the authors' name: the zoo's
    "updown": "updown",
    "adaatt": "adaptive_attention",
    "att2in": "att2in",
    "att2in2": "att2in/embedded",
    "att2all2": "att2all",
    "fc": "show_tell/fc",
    "newfc": "show_tell/fc",
    "show_tell": "show_tell",
    "show_tell2": "show_tell",
}
OWN_IMAGE = ("updown", "adaatt")
DECODED = ["updown", "adaatt", "att2in", "att2in2", "att2all2", "newfc"]


def weights(numbers, name, group):
    """The authors' parameters or gradients. Some saw an image vector of its own beside the regions: it becomes
    further channels of every region, which the weights on the regions ignore, and those on the mean alone read."""
    found = numbers.group(group)
    if name in OWN_IMAGE:
        regions, image = found["att_embed.0.weight"], found["fc_embed.0.weight"]
        found["att_embed.0.weight"] = F.pad(regions, (0, image.shape[1]))
        found["fc_embed.0.weight"] = F.pad(image, (regions.shape[1], 0))
    return found


def load(official, name):
    numbers = official(name)
    return numbers, from_official(MODELS[name], weights(numbers, name, "param/")).eval()


def look(numbers, model):
    if model.visual.kind == "pooled":
        return zoo.Visual(numbers["in/fc_feats"][:, None])
    features, mask = numbers["in/att_feats"], numbers["in/att_masks"].bool()
    if model.visual.dim > features.shape[2]:
        image = numbers["in/fc_feats"][:, None].expand(-1, features.shape[1], -1)
        features = torch.cat((features, image), 2)
    return zoo.Visual(features, mask)


@pytest.mark.parametrize("name", MODELS)
def test_teacher_forcing(official, name):
    numbers, model = load(official, name)
    labels, kept = numbers["in/labels"], numbers["in/masks"][:, 1:]
    log_probs = model(look(numbers, model), labels[:, :-1]).log_softmax(-1)
    torch.testing.assert_close(log_probs, numbers["out/logprobs"], **close)

    gold = log_probs.gather(2, labels[:, 1:, None])[..., 0]
    loss = -(gold * kept).sum() / kept.sum()
    torch.testing.assert_close(loss, numbers["out/loss_xe"], **close)
    loss.backward(retain_graph=True)
    target = torch.full_like(log_probs, 0.2 / (model.vocab_size - 1)).scatter(2, labels[:, 1:, None], 0.8)
    smoothed = (target * (target.log() - log_probs)).sum(-1)
    torch.testing.assert_close((smoothed * kept).sum() / kept.sum(), numbers["out/loss_ls0.2"], **close)

    expected = zoo_tensors(weights(numbers, name, "grad/"))
    parameters = dict(model.named_parameters())
    assert expected.keys() == parameters.keys()
    for key, parameter in parameters.items():
        gradient = parameter.grad
        if name in OWN_IMAGE and key in ("region_embedding.0.weight", "image_embedding.0.weight"):
            gradient = torch.where(expected[key] == 0, 0.0, gradient)
        torch.testing.assert_close(gradient, expected[key], **close, msg=key)


@pytest.mark.parametrize("name", DECODED)
@torch.no_grad()
def test_several_captions_of_an_image(official, name):
    numbers, model = load(official, name)
    tokens = numbers["in/labels_2perimg"].flatten(0, 1)
    logits = model(look(numbers, model), tokens)
    expected = numbers["out/logprobs_2perimg"]
    torch.testing.assert_close(logits.log_softmax(-1)[:, : expected.shape[1]], expected, **close)


@pytest.mark.parametrize("name", [name for name in DECODED if name != "newfc"])
@torch.no_grad()
def test_an_image_without_padding(official, name):
    numbers, model = load(official, name)
    visual = look(numbers, model)
    first = zoo.Visual(visual.features[:1, : int(visual.mask[0].sum())])
    expected = numbers["out/logprobs_image0_nomask"]
    logits = model(first, numbers["in/labels"][:1, : expected.shape[1]])
    torch.testing.assert_close(logits.log_softmax(-1), expected, **close)


@pytest.mark.parametrize("name", DECODED)
def test_greedy(official, name):
    numbers, model = load(official, name)
    tokens, log_probs = numbers["out/greedy_seq"], numbers["out/greedy_logprobs_full"]
    found = greedy(model, model.encode(look(numbers, model)), max_len=tokens.shape[1], bos=0, eos=0)
    assert torch.equal(found.tokens[:, 0], tokens)
    chosen = log_probs.gather(2, tokens[..., None])[..., 0]
    torch.testing.assert_close(found.log_probs[:, 0], chosen, **close)


@pytest.mark.parametrize("suppressed", [False, True])
@pytest.mark.parametrize("name", DECODED)
def test_beam_search(official, name, suppressed):
    """The authors rank by plain sums, and what is finished leaves its place."""
    numbers, model = load(official, name)
    tokens = numbers["out/beam3_seq_suppressUNK" if suppressed else "out/beam3_seq"]
    found = beam_search(
        model,
        model.encode(look(numbers, model)),
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


@pytest.mark.parametrize(
    ("name", "words", "parameters"),
    [
        ("show_tell/fc", 9_487, 13_400_848),
        ("show_tell", 9_487, 12_871_440),
        ("att2in", 9_487, 15_762_193),
        ("att2in/embedded", 9_487, 14_451_985),
        ("att2all", 9_487, 15_239_953),
        ("adaptive_attention", 9_487, 17_339_665),
        ("updown", 9_487, 52_125_025),
        ("show_tell/fc", 10_369, 14_304_898),
        ("show_tell", 10_369, 13_775_490),
        ("att2in", 10_369, 16_666_243),
        ("att2in/embedded", 10_369, 15_356_035),
        ("att2all", 10_369, 16_144_003),
        ("adaptive_attention", 10_369, 18_243_715),
        ("updown", 10_369, 53_889_907),
    ],
)
def test_published_sizes(name, words, parameters):
    with torch.device("meta"):
        model = zoo.create_model(name, vocab_size=words + 1, visual_dim=2048)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_sizes_are_read_off_the_shapes(official):
    assert read_sizes("updown", weights(official("updown"), "updown", "param/")) == {
        "vocab_size": 14,
        "d_model": 16,
        "d_embedding": 12,
        "visual_dim": 38,
        "d_attention": 8,
    }
    assert read_sizes("show_tell", official("show_tell2").group("param/"))["n_layers"] == 2


def test_other_weights_are_refused(official):
    tensors = official("att2in2").group("param/")
    with pytest.raises(zoo.ZooError, match=r"not a state dict of an LSTM captioner.*logit\.weight"):
        from_official("updown", {"encoder.weight": torch.ones(1)})
    with pytest.raises(zoo.ZooError, match=r"region_embedding\.1\.weight: unknown to att2in/embedded"):
        from_official("att2in/embedded", {**tensors, "att_embed.1.weight": torch.ones(16)})
    del tensors["core.a2c.bias"]
    with pytest.raises(zoo.ZooError, match=r"attended\.bias: not in the state dict"):
        from_official("att2in/embedded", tensors)
    updown = weights(official("updown"), "updown", "param/")
    del updown["core.lang_lstm.bias_hh"]
    with pytest.raises(zoo.ZooError, match=r"core\.lang_lstm\.bias_hh missing"):
        from_official("updown", updown)
