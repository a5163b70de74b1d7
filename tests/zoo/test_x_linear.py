"""X-LAN, X-Transformer and PureT beyond parity: converters, arguments, and windows of regions."""

import pytest
import torch

import zoo
from zoo.layers.x_linear import XLinearAttention, seen_where
from zoo.models.puret import WindowAttention, box_cells, neighbours
from zoo.weights import from_official, read_sizes

SIZES = {
    # all as in the files' cfg/*
    "x_lan": {"d_attention": 3, "n_heads": 4, "n_encoder_layers": 2, "n_attention_layers": 1},
    "x_transformer": {"d_attention": 3, "n_heads": 4, "d_ff": 64, "n_encoder_layers": 2, "n_decoder_layers": 2},
    "puret": {
        "d_ff": 64,
        "n_heads": 4,
        "n_encoder_layers": 2,
        "n_decoder_layers": 2,
        "window": 3,
        "grid": 6,
        "max_len": 99,
    },
}
WORDS = {"x_lan": "logit.bias", "x_transformer": "decoder.generator.bias", "puret": "decoder.generator.bias"}


def weights(official, name):
    numbers = official(name)
    return numbers.group("param/") | numbers.group("buffer/")


def tiny(name, **changes):
    torch.manual_seed(0)
    arguments = {**zoo.model_card(name).tiny, **changes}
    return zoo.create_model(name, vocab_size=9, visual_dim=6, **arguments).double().eval()


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_read_off_the_shapes(official, name):
    expected = {"vocab_size": 13, "visual_dim": 20, "d_model": 16, **SIZES[name]}
    assert read_sizes(name, weights(official, name)) == expected


@pytest.mark.parametrize("name", SIZES)
def test_snapshots_of_several_devices(official, name):
    tensors = {f"module.{key}": tensor for key, tensor in weights(official, name).items()}
    model = from_official(name, tensors)
    assert torch.equal(model.vocabulary.bias, tensors[f"module.{WORDS[name]}"])


@pytest.mark.parametrize("name", SIZES)
def test_other_weights_are_refused(official, name):
    tensors = weights(official, name)
    with pytest.raises(zoo.ZooError, match="this is not a state dict of"):
        from_official(name, {"encoder.weight": torch.ones(1)})
    with pytest.raises(zoo.ZooError, match=rf"strange: unknown to {name}"):
        from_official(name, {**tensors, "strange": torch.ones(1)})
    del tensors[WORDS[name]]
    with pytest.raises(zoo.ZooError, match=r"vocabulary\.bias: not in the state dict"):
        from_official(name, tensors)


def test_one_family_is_not_the_other(official):
    with pytest.raises(zoo.ZooError, match="weights of x_lan, not of x_transformer"):
        from_official("x_transformer", weights(official, "x_lan"))


def test_the_backbone_of_a_whole_checkpoint(official):
    tiny_card = zoo.model_card("puret/end-to-end").tiny
    backbone = {"backbone": tiny_card["backbone"], "backbone_options": tiny_card["backbone_options"]}
    whole = zoo.create_model(
        "puret/end-to-end", **read_sizes("puret", weights(official, "puret")) | {"drop_path": 0.0, **backbone}
    )
    # The fixture's tokens are wider than those of this backbone.
    tensors = weights(official, "puret") | {"att_embed.0.weight": torch.ones(16, whole.backbone.num_features)}
    tensors = {key: tensor.float() if tensor.is_floating_point() else tensor for key, tensor in tensors.items()}
    tensors |= {f"backbone.{key}": torch.full_like(tensor, 2) for key, tensor in whole.backbone.state_dict().items()}
    model = from_official("puret/end-to-end", tensors, drop_path=0.0, **backbone)
    assert all((tensor == 2).all() for tensor in model.backbone.state_dict().values())
    assert torch.equal(model.body.vocabulary.bias, tensors["decoder.generator.bias"])


def test_bilinear_attention_as_its_formula():
    """Pair by pair, head by head, over the keys that are seen."""
    torch.manual_seed(0)
    layer = XLinearAttention(8, 2).double().eval()
    rows, memory, mask = torch.rand(2, 3, 8).double(), torch.rand(2, 4, 8).double(), torch.ones(2, 4).bool()
    mask[1, 2:] = False
    found = layer(rows, *layer.project(memory), seen_where(mask, torch.float64))

    def parts(of, x):
        active = torch.nn.functional.celu(of.linear(x), 1.3).unflatten(-1, (2, 2, 4))
        normed = torch.nn.functional.layer_norm(active, (4,))
        return normed.unbind(2)

    (q, own), (k, v) = parts(layer.query, rows), parts(layer.memory, memory)
    expected = torch.empty(2, 3, 2, 4).double()
    for image in range(2):
        seen = mask[image].nonzero()[:, 0]
        for row in range(3):
            for head in range(2):
                joint = layer.joint(q[image, row, head] * k[image, seen, head]).relu()
                spatial = layer.spatial(joint)[:, 0].softmax(0)
                gate = layer.channel(joint.mean(0)).sigmoid()
                expected[image, row, head] = own[image, row, head] * (spatial @ v[image, seen, head]) * gate
    torch.testing.assert_close(found, expected.flatten(2))


@torch.no_grad()
def test_several_attentions_of_a_word():
    model = tiny("x_lan", n_attention_layers=3)
    memory, tokens = model.encode(zoo.Visual(torch.rand(2, 4, 6))), torch.randint(3, 9, (2, 5))
    state, logits = model.start(memory), []
    for word in tokens.unbind(1):
        step, state = model.step(word, state)
        logits.append(step)
    torch.testing.assert_close(torch.stack(logits, 1), model.decode(memory, tokens))
    with pytest.raises(zoo.ZooError, match="n_attention_layers must be at least 1"):
        tiny("x_lan", n_attention_layers=0)


def test_regions_see_those_of_their_window():
    centres = torch.tensor([[0.1, 0.1], [0.4, 0.4], [0.6, 0.1], [0.1, 0.1], [0.9, 0.9]])
    cells = box_cells(torch.cat((centres - 0.05, centres + 0.05), -1)[None], 4)
    assert cells[0].tolist() == [[0, 0], [1, 1], [0, 2], [0, 0], [3, 3]]
    plain, shifted = (neighbours(cells, 4, 2, shift).visible[0].long() for shift in (0, 1))
    assert plain[0].tolist() == [1, 1, 0, 1, 0]
    assert shifted[1].tolist() == [0, 1, 0, 0, 0]
    assert shifted[0].tolist() == [1, 0, 0, 1, 0], "the roll carries the first and the last cell into one window"


@torch.no_grad()
def test_the_global_token_counts_itself_as_often_as_told():
    torch.manual_seed(0)
    layer = WindowAttention(8, 2, 2).double()
    layer.value.weight.zero_(), layer.value.bias.fill_(1.0)
    layer.output.weight.copy_(torch.eye(8)), layer.output.bias.zero_()
    x, cells = torch.rand(1, 5, 8).double(), torch.tensor([[[0, 0], [0, 1], [1, 0], [1, 1]]])
    near = neighbours(cells, 2, 2, 0)
    once, four = (layer(x, torch.ones(1, 4).bool(), near, weight) for weight in (1, 4))
    torch.testing.assert_close(once, torch.ones_like(once))
    torch.testing.assert_close(four[:, :-1], once[:, :-1])
    queries, keys, _ = layer.project_all(x)
    own = (queries[:, :, -1:] @ keys.transpose(-1, -2) / 2).softmax(-1)[..., -1]
    torch.testing.assert_close(four[0, -1].view(2, 4), 1 + 3 * own[0].expand(2, 4))


def test_windows_need_places():
    model = tiny("puret")
    with pytest.raises(zoo.ZooError, match="need the regions' boxes"):
        model.encode(zoo.Visual(torch.rand(1, 4, 6)))
    square = tiny("puret", visual_kind="grid")
    square.encode(zoo.Visual(torch.rand(1, 4, 6)))
    with pytest.raises(zoo.ZooError, match="5 tokens without boxes"):
        square.encode(zoo.Visual(torch.rand(1, 5, 6)))
    with pytest.raises(zoo.ZooError, match="make no windows"):
        tiny("puret", shift=2)


def test_own_rates_of_dropout_are_the_authors():
    def rates(name, *without):
        model = zoo.create_model(name, vocab_size=9, visual_dim=6, d_model=16, n_heads=2)
        found = {key: part.p for key, part in model.named_modules() if isinstance(part, torch.nn.Dropout)}
        return {rate for key, rate in found.items() if not any(word in key for word in without)}

    assert rates("x_lan", "attention.dropout", "attentions.0.dropout", "fusion") == {0.5}
    assert rates("x_transformer", "attention.dropout", "fusion", "embedding_norm") == {0.5}
    assert rates("puret") == {0.1}
