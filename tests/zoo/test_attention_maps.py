"""Where captioners look: laws over every model, and the weights against what they do to the values."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from tests.zoo.test_laws import IMAGES, TOKENS, close, look, tiny, words
from zoo.attention_maps import attends, attention_weights, region_attention_weights
from zoo.errors import ZooError
from zoo.layers.spatial_graph import spatial_graph

SEE_NO_PLACES = {"none", "pooled"}


def attending(name):
    model = tiny(name)
    if not attends(model):
        pytest.skip("does not attend")
    return model


def test_a_model_attends_or_says_that_it_does_not(architecture):
    model = tiny(architecture)
    assert (attention_weights(model, look(model), words(IMAGES)) is None) == (model.visual.kind in SEE_NO_PLACES)


def test_rows_are_shares_of_the_valid_places(architecture):
    model = attending(architecture)
    visual, tokens = look(model), words(IMAGES * 2)
    weights = attention_weights(model, visual, tokens)
    assert weights.shape[:2] == tokens.shape
    assert (weights >= 0).all()
    close(weights.sum(-1), torch.ones(tokens.shape, dtype=weights.dtype))
    if visual.mask is not None:
        assert weights.shape[2] == TOKENS
        padding = ~visual.mask.repeat_interleave(2, 0)[:, None].expand_as(weights)
        assert not weights[padding].any()
        assert (weights[~padding] > 0).all()


@torch.no_grad()
def test_looking_changes_nothing_and_leaves_nothing_behind(architecture):
    model = attending(architecture)
    visual, tokens = look(model), words(IMAGES)
    before = model(visual, tokens)
    heard = []
    whole = model.decode
    model.decode = lambda *inputs: heard.append(whole(*inputs)) or heard[0]
    first = attention_weights(model.train(), visual, tokens)
    del model.decode
    assert model.training
    model.eval()
    assert torch.equal(heard[0], before)
    assert torch.equal(model(visual, tokens), before)
    assert torch.equal(attention_weights(model, visual, tokens), first)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_word_looks_without_knowing_what_comes_later(architecture):
    model = attending(architecture)
    visual, tokens = look(model), words(IMAGES)
    other = tokens.clone()
    other[:, 4:] = words(IMAGES)[:, 4:].flip(1)
    close(attention_weights(model, visual, other)[:, :4], attention_weights(model, visual, tokens)[:, :4])


def test_captions_of_an_image_look_each_for_themselves(architecture):
    model = attending(architecture)
    visual, tokens = look(model), words(IMAGES * 2)
    both = attention_weights(model, visual, tokens).unflatten(0, (IMAGES, 2))
    for caption in range(2):
        close(both[:, caption], attention_weights(model, visual, tokens.unflatten(0, (IMAGES, 2))[:, caption]))


def graph_at(visual, places):
    """The scene graph of regions that lie at other places: relations begin with two of them, attributes with one."""
    found = {}
    for name, count in (("relations", 2), ("attributes", 1)):
        if (told := getattr(visual, name)) is not None:
            own = torch.where(told[..., :count] < 0, told[..., :count], places[told[..., :count]])
            found[name] = torch.cat((own, told[..., count:]), -1)
    return found


def test_weights_move_with_their_places(architecture):
    model = attending(architecture)
    visual, tokens = look(model), words(IMAGES)
    if visual.mask is None:
        pytest.skip("sees whole pictures")
    order = torch.tensor([3, 0, 4, 1, 2])
    boxes = None if visual.boxes is None else visual.boxes[:, order]
    moved = replace(visual, features=visual.features[:, order], mask=visual.mask[:, order], boxes=boxes)
    moved = replace(moved, **graph_at(visual, order.argsort()))
    close(attention_weights(model, moved, tokens), attention_weights(model, visual, tokens)[..., order])


def test_an_image_with_nothing_to_see_has_no_weights(architecture):
    model = attending(architecture)
    visual = look(model)
    if visual.mask is None:
        pytest.skip("sees whole pictures")
    assert not attention_weights(model, replace(visual, mask=torch.zeros_like(visual.mask)), words(IMAGES)).any()


@torch.no_grad()
def test_a_recurrent_model_s_weights_give_what_it_attended_to():
    model = tiny("updown")
    visual, tokens = look(model), words(IMAGES)
    attended = []
    model.attention.register_forward_hook(lambda _module, _inputs, output: attended.append(output))
    weights = attention_weights(model, visual, tokens)
    close(weights @ model.encode(visual).features, torch.stack(attended, 1))


@torch.no_grad()
def test_several_layers_and_heads_are_averaged():
    model = tiny("transformer_base", n_decoder_layers=2)
    visual, tokens = look(model), words(IMAGES)
    seen = []
    original = F.scaled_dot_product_attention

    class Watch(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, _types, args=(), kwargs=None):
            if func is original and args[1].shape[2] == TOKENS and args[0].shape[2] == tokens.shape[1]:
                scores = args[0] @ args[1].mT / args[0].shape[-1] ** 0.5
                seen.append((scores + args[3]).softmax(-1))
            return func(*args, **(kwargs or {}))

    with Watch():
        model(visual, tokens)
    assert len(seen) == 2
    close(attention_weights(model, visual, tokens), torch.stack(seen).mean((0, 2)))


def relating(name):
    model = tiny(name)
    if not model.region_attention_modules():
        pytest.skip("its encoder does not attend")
    return model


def test_the_encoder_s_rows_are_shares_of_the_valid_places(architecture):
    model = relating(architecture)
    visual = look(model)
    weights = region_attention_weights(model.train(), visual)
    assert model.training
    assert (weights >= 0).all()
    if visual.mask is None:
        close(weights.sum(-1), torch.ones(weights.shape[:2], dtype=weights.dtype))
        return
    assert weights.shape == (IMAGES, TOKENS, TOKENS)
    close(weights.sum(-1), visual.mask.to(weights.dtype))
    assert not weights[~(visual.mask[:, :, None] & visual.mask[:, None])].any()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_which_encoders_relate_places():
    assert {
        name: bool(tiny(name).region_attention_modules())
        for name in (
            "transformer_base",
            "image_transformer",
            "aoanet",
            "aoanet/no-refiner",
            "m2",
            "get",
            "dlct",
            "grit",
        )
    } == {
        "transformer_base": True,
        "image_transformer": True,
        "aoanet": True,
        "aoanet/no-refiner": False,
        "m2": True,
        "get": True,
        "dlct": True,
        "grit": False,
    }
    assert region_attention_weights(tiny("expansionnet_v2"), look(tiny("expansionnet_v2"))) is None


@torch.no_grad()
def test_the_encoder_s_weights_are_those_of_its_softmax():
    model = tiny("transformer_base", n_encoder_layers=2)
    visual = look(model)
    mixers = [layer.mixer for layer in model.encoder_layers]
    wanted = []

    def keep(mixer, inputs, _output):
        queries, keys, _ = mixer.project_all(inputs[0])
        scores = (queries @ keys.mT / mixer.d_head**0.5).masked_fill(~visual.mask[:, None, None], -torch.inf)
        wanted.append(scores.softmax(-1))

    hooks = [mixer.register_forward_hook(keep) for mixer in mixers]
    model.encode(visual)
    for hook in hooks:
        hook.remove()
    close(region_attention_weights(model, visual), torch.stack(wanted).mean((0, 2)) * visual.mask[..., None])


@torch.no_grad()
def test_the_image_transformer_s_weights_go_along_its_graph():
    """Each region takes from itself and from regions of every relation, by the branch of that relation."""
    model = tiny("image_transformer/layer-1", n_encoder_layers=1)
    visual = look(model)
    features, mask = visual.valid_features(model.query.weight.dtype)
    mixer = model.refiner.layers[0].mixer
    graph = spatial_graph(visual.boxes, mask)
    x = model.refiner.layers[0].mixer_norm(model.region_embedding(features))
    queries = mixer.query(x).view(*x.shape[:2], mixer.n_heads, -1)
    wanted = torch.zeros(len(x), mixer.n_heads, x.shape[1], x.shape[1], dtype=x.dtype)
    for kind, key in enumerate(mixer.keys, 1):
        keys = key(x).view(*x.shape[:2], mixer.n_heads, -1)
        scores = torch.einsum("bihd,bjhd->bhij", queries, keys) / mixer.d_head**0.5
        wanted += scores.masked_fill(~mask[:, None, None], -torch.inf).softmax(-1) * (graph == kind)[:, None]
    wanted = wanted.mean(1)
    rows = wanted.sum(-1, keepdim=True)
    close(region_attention_weights(model, visual), wanted / torch.where(rows > 0, rows, 1.0))


def test_one_head_is_one_of_those_that_the_mean_is_of(architecture):
    model = attending(architecture)
    visual, tokens = look(model), words(IMAGES * 2)
    mean, heads = attention_weights(model, visual, tokens), []
    with pytest.raises(ZooError, match="there is no head 1000: this model has") as caught:
        attention_weights(model, visual, tokens, head=1000)
    count = int(caught.value.hint.rpartition(" ")[2])
    for head in range(1, count + 1):
        heads.append(attention_weights(model, visual, tokens, head))
        if visual.mask is None:
            close(heads[-1].sum(-1), torch.ones(tokens.shape, dtype=mean.dtype))
    if architecture in {"transformer_base", "expansionnet_v2", "transformer"}:  # no place is left out of its rows
        close(torch.stack(heads).mean(0), mean)
