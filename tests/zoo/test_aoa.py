"""AoANet and its descendants: sizes, cost of decoding, released weights, dropout, and extreme inputs."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import zoo
from zoo.decoding import beam_search
from zoo.weights import from_official
from zoo.weights.aoa import zoo_name

FAMILIES = ["aoanet", "aoanet/no-refiner", "image_transformer", "image_transformer/no-spatial", "transformer_aoa"]
SEARCH = {"bos": 1, "eos": 2}


def tiny(name, **changes):
    torch.manual_seed(0)
    arguments = {**zoo.model_card(name).tiny, **changes}
    return zoo.create_model(name, vocab_size=9, visual_dim=6, **arguments).eval()


def look(images, regions):
    corner = torch.rand(images, regions, 2)
    boxes = torch.cat((corner, corner + torch.rand(images, regions, 2)), -1)
    return zoo.Visual(torch.rand(images, regions, 6), torch.ones(images, regions, dtype=torch.bool), boxes)


@pytest.mark.parametrize(("name", "parameters"), [("aoanet", 87_369_858), ("image_transformer", 82_121_858)])
def test_published_size(name, parameters):
    """At the authors' vocabulary of 10,369 words, which makes 10,370 rows."""
    with torch.device("meta"):
        model = zoo.create_model(name, vocab_size=10_370, visual_dim=2048)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def macs(work):
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        result = work()
    return counter.get_total_flops() / 2, result


@pytest.mark.parametrize("sub_transformers", [1, 3])
def test_a_step_projects_no_region(sub_transformers):
    """Its multiply-accumulates are those of one position, with five beams that share an image's keys and values."""
    d_model, regions, width, vocabulary = 1024, 100, 5, 10_370
    with torch.device("meta"):
        model = zoo.create_model(
            "image_transformer", vocab_size=vocabulary, visual_dim=2048, sub_transformers=sub_transformers
        ).eval()
        visual = zoo.Visual(torch.empty(1, regions, 2048), boxes=torch.empty(1, regions, 4))
        words = torch.ones(width, dtype=torch.long)
    memory = model.encode(visual)
    started, state = macs(lambda: model.start(memory))
    assert started == 0
    state = state.expand(width)
    assert state.images["keys"].shape == (1, 8, sub_transformers * regions, d_model // 8)
    lstm, query, gate = 4 * d_model * 3 * d_model, d_model**2, 4 * d_model**2
    attention = sub_transformers * 2 * regions * d_model
    stepped, _ = macs(lambda: model.step(words, state))
    assert stepped == width * (lstm + query + attention + gate + d_model * vocabulary)


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_images_of_1_to_100_regions_share_a_batch(name):
    model = tiny(name).double()
    visual, tokens = look(4, 100), torch.randint(3, 9, (4, 5))
    lengths = [1, 10, 37, 100]
    mask = torch.arange(100) < torch.tensor(lengths)[:, None]
    together = model(zoo.Visual(visual.features, mask, visual.boxes), tokens)
    for image, length in enumerate(lengths):
        one = slice(image, image + 1)
        alone = model(zoo.Visual(visual.features[one, :length], None, visual.boxes[one, :length]), tokens[one])
        torch.testing.assert_close(together[one], alone, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", FAMILIES)
def test_an_image_without_regions_gives_numbers_and_gradients(name):
    model, visual = tiny(name).train(), look(2, 5)
    mask = torch.tensor([[True] * 5, [False] * 5])
    memory = model.encode(zoo.Visual(visual.features, mask, visual.boxes))
    model.decode(memory, torch.randint(3, 9, (2, 6))).square().mean().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    found = beam_search(model, memory, beam_size=3, max_len=6, **SEARCH)
    assert found.scores.isfinite().all()


@pytest.mark.parametrize("name", FAMILIES)
@torch.no_grad()
def test_dropout_is_on_in_training_and_follows_its_setting(name):
    model, visual, tokens = tiny(name), look(2, 5), torch.randint(3, 9, (2, 6))
    still = model(visual, tokens)
    model.train()
    assert not torch.equal(model(visual, tokens), model(visual, tokens))
    model.set_dropout(0.0)
    torch.testing.assert_close(model(visual, tokens), still)


def test_half_precision_gives_numbers_and_gradients():
    for name in FAMILIES:
        model, visual = tiny(name), look(2, 5)
        with torch.autocast("cpu", torch.float16):
            model(visual, torch.randint(3, 9, (2, 6))).float().square().mean().backward()
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@torch.no_grad()
def test_single_memory_has_values_first(official):
    """The same keys and values under either name, and in either order, give the same captioner."""
    numbers = official("image_transformer_model", zoo_name)
    several = {key: value for key, value in numbers.group("param/").items() if "implicit" not in key}
    one = dict(several)
    for part in ("weight", "bias"):
        implicit = numbers[f"param/core.implicit1.{part}"]
        several |= {f"core.implicit{number}.{part}": implicit for number in (1, 2)}
        one[f"ctx2att.{part}"] = implicit.roll(len(implicit) // 2, 0)
    visual = zoo.Visual(numbers["in/att_feats"], numbers["in/att_masks"].bool(), numbers["in/boxes"])
    tokens = numbers["in/labels"]
    torch.testing.assert_close(
        from_official("image_transformer/sub-1", one, n_heads=4).eval()(visual, tokens),
        from_official("image_transformer/sub-2", several, n_heads=4).eval()(visual, tokens),
        atol=1e-10,
        rtol=1e-10,
    )


def test_weights_of_another_variant_are_named(official):
    weights = official("aoanet", zoo_name).group("param/")
    with pytest.raises(zoo.ZooError, match=r"refiner.layers.0.self_attn.linears.0.weight: unknown to aoanet/no-ref"):
        from_official("aoanet/no-refiner", weights, n_heads=4)
    with pytest.raises(zoo.ZooError, match="not a state dict of AoANet") as caught:
        from_official("aoanet", {"model": torch.ones(1)})
    assert "model_state_dict" in caught.value.hint
