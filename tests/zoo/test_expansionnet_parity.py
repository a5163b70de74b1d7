"""ExpansionNet equals the authors' code: outputs and gradients of every layer and of the whole model, in float64."""

import pytest
import torch

import zoo
from zoo.decoding import beam_search
from zoo.layers.attention import MultiHeadAttention, SelfAttention
from zoo.layers.embedding import TokenEmbedding
from zoo.layers.expansion import DynamicExpansion, StaticExpansion
from zoo.layers.residual import DecoderLayer, EncoderLayer, FeedForward
from zoo.weights import from_official

close = {"atol": 1e-10, "rtol": 1e-10}


def check(numbers, module, place, output, **inputs):
    torch.testing.assert_close(output, numbers["out/y"], **close)
    (output * numbers["in/loss_weight"]).sum().backward()
    numbers.check_gradients(module, place)
    for name, tensor in inputs.items():
        torch.testing.assert_close(tensor.grad, numbers[f"grad/in/{name}"], **close)


def valid_tokens(mask):
    """The valid positions (B, T) behind a square mask."""
    return mask.bool().diagonal(dim1=1, dim2=2)


def padding_mask(pads, length):
    return torch.arange(length) < length - pads[:, None]


def test_static_expansion(official):
    numbers = official("expansionnet_static_expansion")
    layer = numbers.load(StaticExpansion(32, numbers.size("groups"), 0.0))
    x = numbers["in/x"].requires_grad_()
    check(numbers, layer, "", layer(x, numbers["in/mask"][:, 0].bool()), x=x)


@pytest.mark.parametrize(("name", "causal"), [("dynamic_expansion", True), ("dynamic_expansion_bidirectional", False)])
def test_dynamic_expansion(official, name, causal):
    numbers = official(f"expansionnet_{name}")
    layer = numbers.load(DynamicExpansion(32, numbers.size("num_exp_dec"), 0.0, causal))
    x = numbers["in/x"].requires_grad_()
    check(numbers, layer, "", layer(x, valid_tokens(numbers["in/mask"])), x=x)


def test_dynamic_expansion_without_reassociation(official):
    """Training with dropout takes another route through the algebra; a vanishing rate makes it comparable."""
    numbers = official("expansionnet_dynamic_expansion")
    layer = numbers.load(DynamicExpansion(32, numbers.size("num_exp_dec"), 1e-30, causal=True)).train()
    x = numbers["in/x"].requires_grad_()
    check(numbers, layer, "", layer(x, valid_tokens(numbers["in/mask"])), x=x)


def test_dynamic_expansion_steps(official):
    numbers = official("expansionnet_dynamic_expansion")
    layer = numbers.load(DynamicExpansion(32, numbers.size("num_exp_dec"), 0.0, causal=True))
    x, cache, outputs = numbers["in/x"][:1], layer.start(numbers["in/x"][:1]), []
    projection = layer.projection()
    for position in range(x.shape[1]):
        output, cache = layer.step(x[:, position : position + 1], cache, projection)
        outputs.append(output)
    torch.testing.assert_close(torch.cat(outputs, 1), numbers["out/y"][:1], **close)


def test_attention(official):
    numbers = official("expansionnet_attention")
    layer = numbers.load(MultiHeadAttention(32, numbers.size("num_heads")), "mha.")
    q, kv = numbers["in/q"].requires_grad_(), numbers["in/kv"].requires_grad_()
    check(numbers, layer, "mha.", layer(q, *layer.project(kv), numbers["in/mask"].bool()), q=q, kv=kv)


def test_feed_forward(official):
    numbers = official("expansionnet_feed_forward")
    layer = numbers.load(FeedForward(32, 64, 0.0), "ff.")
    x = numbers["in/x"].requires_grad_()
    check(numbers, layer, "ff.", layer(x), x=x)


def test_embedding(official):
    numbers = official("expansionnet_embedding")
    layer = TokenEmbedding(60, 32, 20, 0.0).double()
    layer.words.weight.data.copy_(numbers["param/embed.weight"])
    embedded = layer(numbers["in/tokens"]) - layer.positions.weight[:8]
    torch.testing.assert_close(embedded, numbers["out/y"], **close)


def test_encoder_layer(official):
    numbers = official("expansionnet_encoder_layer")
    layer = numbers.load(EncoderLayer(StaticExpansion(32, numbers.size("groups"), 0.0), 32, 64, 0.0), "encoders.0.")
    x = numbers["in/x"].requires_grad_()
    check(numbers, layer, "encoders.0.", layer(x, numbers["in/mask"][:, 0].bool()), x=x)


def test_decoder_layer(official):
    numbers = official("expansionnet_decoder_layer")
    attention = MultiHeadAttention(32, numbers.size("num_heads"))
    layer = DecoderLayer(DynamicExpansion(32, 3, 0.0, causal=True), attention, 32, 64, 0.0)
    numbers.load(layer, "decoders.0.")
    x, cross = numbers["in/x"].requires_grad_(), numbers["in/cross"].requires_grad_()
    keys, values = layer.cross_attention.project(cross)
    output = layer(x, keys, values, numbers["in/cross_mask"].bool(), valid_tokens(numbers["in/self_mask"]))
    check(numbers, layer, "decoders.0.", output, x=x, cross=cross)


def load_model(numbers, name="expansionnet_v2"):
    return from_official(
        name,
        numbers.group("param/"),
        n_heads=numbers.size("num_heads"),
        static_lengths=tuple(numbers.size("groups")),
    ).eval()


def test_whole_model(official):
    numbers = official("expansionnet_model")
    model = load_model(numbers)
    mask = padding_mask(numbers["in/enc_num_pads"], 7)
    memory = model.encode(zoo.Visual(numbers["in/features"], mask))
    torch.testing.assert_close(memory.features[mask], numbers["out/encoder"][mask], **close)
    keep = numbers["in/target_keep"].bool()
    log_probs = model.decode(memory, numbers["in/dec_input"]).log_softmax(-1)
    torch.testing.assert_close(log_probs[keep], numbers["out/log_probs"][keep], **close)
    nll = -log_probs.gather(2, numbers["in/target"][..., None])[..., 0][keep].sum()
    torch.testing.assert_close(nll, numbers["out/nll_sum"], **close)
    nll.backward()
    numbers.check_gradients(model)


def test_version_1_is_version_2_with_one_group(official):
    numbers = official("expansionnet_v1_model")
    model = from_official(
        "expansionnet_v2",
        numbers.group("param/"),
        n_heads=numbers.size("num_heads"),
        static_lengths=(numbers.size("num_exp_enc"),),
    ).eval()
    mask = padding_mask(numbers["in/enc_num_pads"], 6)
    memory = model.encode(zoo.Visual(numbers["in/features"], mask))
    torch.testing.assert_close(memory.features[mask], numbers["out/encoder"][mask], **close)
    keep = padding_mask(numbers["in/dec_num_pads"], 7)
    log_probs = model.decode(memory, numbers["in/dec_input"]).log_softmax(-1)
    torch.testing.assert_close(log_probs[keep], numbers["out/log_probs"][keep], **close)


@pytest.mark.parametrize("width", [1, 3, 5])
def test_beam_search(official, width):
    numbers = official("expansionnet_beam")
    model = load_model(numbers)
    memory = model.encode(zoo.Visual(numbers["in/features"], padding_mask(numbers["in/enc_num_pads"], 7)))
    # The authors count the begin token: in the longest hypothesis and in the length that ranks.
    found = beam_search(
        model,
        memory,
        beam_size=width,
        max_len=numbers.size("beam_max_seq_len") - 1,
        bos=numbers.size("SOS"),
        eos=numbers.size("EOS"),
        count_bos=True,
    )
    expected = numbers[f"out/beam{width}_tokens"][..., 1:]
    assert torch.equal(found.tokens, expected.clamp(min=0))
    assert torch.equal(found.lengths, (expected >= 0).sum(-1))
    torch.testing.assert_close(found.log_probs, numbers[f"out/beam{width}_log_probs"][..., 1:], **close)
    torch.testing.assert_close(found.scores, numbers[f"out/beam{width}_scores"], **close)


def test_published_size():
    """38,604,560 parameters without the backbone, at the authors' vocabulary and longest caption."""
    model = zoo.create_model("expansionnet_v2", vocab_size=10_000, visual_dim=1536, max_len=74)
    assert sum(parameter.numel() for parameter in model.parameters()) == 38_604_560


def test_self_attention_with_padding_equals_the_shorter_sequence():
    layer = SelfAttention(16, 4, causal=True).double()
    x = torch.randn(2, 6, 16, dtype=torch.float64)
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[:, 4:] = False
    torch.testing.assert_close(layer(x, mask)[:, :4], layer(x[:, :4]), **close)
