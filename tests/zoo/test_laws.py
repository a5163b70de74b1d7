"""The laws of the interface, for every registered model at its tiny size; models that are equal there share a run."""

import inspect
import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

import zoo
from zoo.decoding import beam_search, greedy
from zoo.laws import check_laws, single_image
from zoo.layers.expansion import normalise
from zoo.precision import full_precision

IMAGES, TOKENS, CHANNELS, VOCAB, BOS, EOS = 3, 5, 6, 23, 1, 2
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def tiny(name, dtype=torch.float64, **overrides):
    model = zoo.create_model(name, vocab_size=VOCAB, visual_dim=CHANNELS, **{**zoo.model_card(name).tiny, **overrides})
    return model.to(dtype).eval()


def look(model, images=IMAGES, dtype=torch.float64):
    """Random input of the kind that the model wants; image b has b padded tokens where it sees several."""
    kind = model.visual.kind
    if kind == "pixels":
        return zoo.Visual(pixels=torch.rand(images, 3, 32, 32, dtype=dtype))
    count = TOKENS if kind in {"grid", "regions", "regions+grid"} else 1
    features = torch.rand(images, count, CHANNELS, dtype=dtype)
    mask = torch.arange(count) < (count - torch.arange(images) % count)[:, None]
    boxes = None
    if kind.startswith("regions"):
        corner = torch.rand(images, count, 2, dtype=dtype) / 2
        boxes = torch.cat((corner, corner + 0.1 + torch.rand(images, count, 2, dtype=dtype) / 4), -1)
    return zoo.Visual(features, mask, boxes, **beside(model, images, dtype))


def beside(model, images, dtype):
    """What a model sees beside its features: a grid of 2 x 2 cells, or a scene graph of the first two regions."""
    if model.visual.grid_dim:
        return {"grid": torch.rand(images, 2, 2, model.visual.grid_dim, dtype=dtype)}
    if model.visual.graph == "none":
        return {}
    number = torch.arange(images) % 3 + 1
    relations = torch.stack((torch.ones_like(number), torch.zeros_like(number), number), -1)[:, None].repeat(1, 2, 1)
    relations[:, 1] = -1
    relations[-1] = torch.tensor([0, 1, 2])
    if model.visual.graph == "labels":
        return {"relations": relations}
    return {"relations": relations, "attributes": torch.stack((number * 0, number + 3, number * 0 - 1), -1)[:, None]}


def words(rows, length=7):
    tokens = torch.randint(3, VOCAB, (rows, length))
    tokens[:, 0] = BOS
    return tokens


def close(actual, expected, tolerance=1e-10):
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


def stepped(model, memory, tokens):
    """The logits of `step`, word by word."""
    state, logits = model.start(memory).expand(len(tokens) // memory.batch_size), []
    for word in tokens.unbind(1):
        step, state = model.step(word, state)
        logits.append(step)
    return torch.stack(logits, 1)


@torch.no_grad()
def test_stepping_equals_teacher_forcing(architecture):
    model = tiny(architecture)
    memory, tokens = model.encode(look(model)), words(IMAGES * 2, model.max_len)
    close(stepped(model, memory, tokens), model.decode(memory, tokens))


def test_the_laws_that_plug_ins_are_held_to(architecture, monkeypatch):
    monkeypatch.setattr(zoo.laws, "TOLERANCE", TOLERANCE)  # closer than a user's machine needs
    for dtype in TOLERANCE:
        model = tiny(architecture, dtype)
        check_laws(model, look(model, dtype=dtype), vocab_size=VOCAB, begin=BOS)


@torch.no_grad()
def test_padding_changes_nothing(architecture):
    model = tiny(architecture)
    visual, tokens = look(model), words(IMAGES)
    if visual.mask is None:
        pytest.skip("sees whole pictures")
    other = visual.features.masked_fill(~visual.mask[..., None], math.nan)
    close(model(replace(visual, features=other), tokens), model(visual, tokens))


@torch.no_grad()
def test_a_search_in_a_batch_equals_that_of_its_images_alone(architecture):
    model = tiny(architecture)
    visual = look(model)
    search = {"max_len": 8, "bos": BOS, "eos": EOS}
    found = beam_search(model, model.encode(visual), beam_size=3, **search)
    for image in range(IMAGES):
        single = beam_search(model, model.encode(single_image(visual, image)), beam_size=3, **search)
        assert torch.equal(single.tokens, found.tokens[image : image + 1])
        close(single.scores, found.scores[image : image + 1])


def test_an_image_without_valid_tokens_gives_numbers_and_gradients(architecture):
    model = tiny(architecture).train()
    visual = look(model)
    if visual.mask is None:
        pytest.skip("sees whole pictures")
    memory = model.encode(replace(visual, mask=torch.zeros_like(visual.mask)))
    logits = model.decode(memory, words(IMAGES))
    logits.square().mean().backward()
    assert logits.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    assert beam_search(model, memory, beam_size=3, max_len=6, bos=BOS, eos=EOS).scores.isfinite().all()


@torch.no_grad()
def test_a_missing_mask_means_that_all_is_valid(architecture):
    model = tiny(architecture)
    visual, tokens = look(model), words(IMAGES)
    if visual.mask is None:
        pytest.skip("sees whole pictures")
    full = replace(visual, mask=torch.ones_like(visual.mask))
    close(model(replace(visual, mask=None), tokens), model(full, tokens))


@torch.no_grad()
def test_a_beam_of_one_is_greedy(architecture):
    model = tiny(architecture)
    memory = model.encode(look(model))
    search = {"max_len": model.max_len, "bos": BOS, "eos": EOS}
    narrow, first = beam_search(model, memory, beam_size=1, **search), greedy(model, memory, **search)
    assert torch.equal(narrow.tokens, first.tokens)
    close(narrow.log_probs, first.log_probs)
    close(narrow.scores, first.scores)


@torch.no_grad()
def test_saving_and_loading_is_the_identity(architecture, tmp_path):
    model = tiny(architecture, torch.float32)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    torch.manual_seed(1)
    other = tiny(architecture, torch.float32)
    other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    visual, tokens = look(model, dtype=torch.float32), words(IMAGES)
    assert torch.equal(other(visual, tokens), model(visual, tokens))


def test_a_tiny_model_learns_eight_captions_by_heart(architecture):
    model = tiny(architecture, torch.float32).train()
    model.set_dropout(0.0)
    visual = look(model, 8, torch.float32)
    tokens = words(8, 6)
    if model.visual.kind == "none":
        tokens = tokens[:1].expand(8, -1)
    optimiser = torch.optim.Adam(model.parameters(), 0.015, fused=True)
    right = torch.zeros(1)
    for _ in range(300):
        logits = model(visual, tokens[:, :-1])
        right = (logits.argmax(-1) == tokens[:, 1:]).float().mean()
        if right == 1:
            break
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimiser.step()
    assert right == 1


def test_every_parameter_learns(architecture):
    model = tiny(architecture)
    model(look(model), words(IMAGES)).square().sum().backward()
    assert not [label for label, parameter in model.named_parameters() if parameter.grad is None]


def test_the_model_says_what_it_is(architecture):
    card, model = zoo.model_card(architecture), tiny(architecture)
    assert model.visual.kind == card.visual
    assert model.vocab_size == VOCAB
    assert model.max_len == card.tiny.get("max_len", model.max_len)
    assert sum(parameter.numel() for parameter in model.parameters()) > 0
    with pytest.raises(zoo.ZooError, match="longer than max_len"):
        model(look(model), words(IMAGES, model.max_len + 1))


@pytest.mark.parametrize("name", zoo.list_models())
def test_the_card_is_complete(name):
    card = zoo.model_card(name)
    assert all((card.summary, card.paper, card.licence))
    assert len(card.summary) <= 80
    assert card.source.startswith("https://")
    assert 1990 <= card.year <= 2100
    model = tiny(name)
    assert card.has_backbone == isinstance(model, zoo.HasBackbone)
    accepted = inspect.signature(type(model)).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values()):
        assert {"d_model", "dropout", "max_len", *card.arguments, *card.tiny, *card.small} <= set(accepted)
    small = zoo.create_model(name, vocab_size=VOCAB, visual_dim=CHANNELS, **{**card.tiny, **card.small})
    assert small.visual.kind == card.visual


def test_autocast_trains_and_decodes(architecture):
    model = tiny(architecture, torch.float32).train()
    visual, tokens = look(model, 2, torch.float32), words(4, 6)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(visual, tokens).float().square().mean()
    loss.backward()
    model.eval()
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        half = model(visual, tokens).float()
        memory = model.encode(visual)
        steps = stepped(model, memory, tokens).float()
        found = beam_search(model, memory, beam_size=3, max_len=6, bos=BOS, eos=EOS)
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    assert found.scores.dtype == found.log_probs.dtype == torch.float32
    assert found.scores.isfinite().all()
    assert ((found.lengths == 6) | (found.tokens == EOS).any(-1)).all()
    with torch.no_grad():
        # A score that rounding moves across zero changes stream, however small it is, so that two of 24 rows may jump.
        near = (torch.stack((half, steps)) - model(visual, tokens)).abs() < 0.15
    assert near.float().mean((1, 2, 3)).amin() > 0.9


def test_rows_of_zeros_stay_zeros_in_half_precision():
    assert torch.equal(normalise(full_precision(torch.zeros(2, 3, dtype=torch.float16)), -1), torch.zeros(2, 3))
