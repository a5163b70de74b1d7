"""AoANet and the Image Transformer equal their authors' code in float64: graph, layers, whole model, decoding."""

import pytest
import torch

import zoo
from zoo.decoding import beam_search, greedy
from zoo.layers.annotated_norm import AnnotatedNorm
from zoo.layers.aoa import AttentionOnAttention, SpatialGraphAttention, spatial_graph
from zoo.layers.residual import EncoderLayer
from zoo.weights import from_official
from zoo.weights.aoa import zoo_lstm, zoo_name

close = {"atol": 1e-10, "rtol": 1e-10}
MODELS = {
    "aoanet": ("aoanet", {}),
    "aoanet_wo_refine": ("aoanet/no-refiner", {}),
    "image_transformer_model": ("image_transformer", {"graph": "official"}),
}


@pytest.fixture(params=MODELS)
def numbers(official, request):
    return official(request.param, zoo_name)


@pytest.fixture
def model(numbers, request):
    name, arguments = MODELS[request.node.callspec.params["numbers"]]
    return from_official(name, numbers.group("param/"), n_heads=numbers.size("heads"), **arguments).eval()


def look(numbers):
    boxes = numbers.group("in/").get("boxes")
    return zoo.Visual(numbers["in/att_feats"], numbers["in/att_masks"].bool(), boxes)


@pytest.mark.parametrize("precision", ["f32", "f64"])
@pytest.mark.parametrize("case", ["nested", "random", "ties", "disjoint", "exact09"])
def test_the_released_graph(official, case, precision):
    numbers = official("image_transformer_adjacency", zoo_name)
    boxes = numbers[f"in/{case}_{precision}"]
    found = spatial_graph(boxes[None], threshold=numbers.size("eps"), mode="official")[0]
    assert torch.equal(found.double(), numbers[f"out/{case}_{precision}"])


def test_the_graph_of_a_padded_batch(official):
    numbers = official("image_transformer_model", zoo_name)
    found = spatial_graph(numbers["in/boxes"], numbers["in/att_masks"].bool(), mode="official")
    assert torch.equal(found.double(), numbers["in/flags"])


def test_a_wide_layer(official):
    numbers = official("image_transformer_encoder_layer", zoo_name)
    mixer = SpatialGraphAttention(16, numbers.size("heads"), 0.0, AttentionOnAttention(16))
    layer = EncoderLayer(mixer, 16, None, 0.0, norm=AnnotatedNorm)
    numbers.load(layer)
    x, mask = numbers["in/x"].requires_grad_(), numbers["in/mask"].bool()
    normed = layer.mixer_norm(x)
    torch.testing.assert_close(normed, numbers["out/layernorm"], **close)
    torch.testing.assert_close(mixer(normed, mask, numbers["in/flags"]), numbers["out/attn_sublayer"], **close)
    y = layer(x, mask, numbers["in/flags"])
    torch.testing.assert_close(y, numbers["out/y"], **close)
    (y * numbers["in/grad_w"]).sum().backward()
    numbers.check_gradients(layer, group="grad/")
    torch.testing.assert_close(x.grad, numbers["grad/__input_x"], **close)


def test_the_encoder_and_the_first_step(numbers, model):
    longest = int(numbers["in/att_masks"].sum(1).max())
    memory = model.encode(look(numbers))
    mask = memory.mask[:, :longest]
    torch.testing.assert_close(memory.features[:, :longest][mask], numbers["out/encoder"][mask], **close)
    state = model.start(memory)
    torch.testing.assert_close(state.images["mean"], numbers["out/mean_feats"], **close)
    logits, state = model.step(torch.zeros(memory.batch_size, dtype=torch.long), state)
    torch.testing.assert_close(logits.log_softmax(-1), numbers["out/step0_logprobs"], **close)
    hidden, context = numbers["out/step0_state_h"]
    torch.testing.assert_close(state.rows["hidden"], hidden, **close)
    torch.testing.assert_close(state.rows["context"], context, **close)
    torch.testing.assert_close(state.rows["cell"], numbers["out/step0_state_c"][0], **close)


def test_log_probabilities_losses_and_gradients(numbers, model):
    labels, weights = numbers["in/labels"], numbers["in/masks"][:, 1:]
    log_probs = model(look(numbers), labels[:, :-1]).log_softmax(-1)
    torch.testing.assert_close(log_probs, numbers["out/logprobs"], **close)
    gold = log_probs.gather(2, labels[:, 1:, None])[..., 0]
    loss = -(gold * weights).sum() / weights.sum()
    torch.testing.assert_close(loss, numbers["out/loss_xe"], **close)

    smoothing, others = numbers.size("label_smoothing"), model.vocab_size - 1
    target = torch.full_like(log_probs, smoothing / others).scatter(2, labels[:, 1:, None], 1 - smoothing)
    divergence = (target * (target.log() - log_probs)).sum(-1)
    torch.testing.assert_close((divergence * weights).sum() / weights.sum(), numbers["out/loss_ls0.2"], **close)

    loss.backward()
    found = {label: parameter.grad for label, parameter in model.named_parameters()}
    gradients = numbers.group("grad/")
    expected = {zoo_name(key): gradient for key, gradient in gradients.items() if "lstm" not in key}
    torch.testing.assert_close(found, {**expected, **zoo_lstm(gradients)}, **close)


def test_greedy_captions(numbers, model):
    found = greedy(model, model.encode(look(numbers)), max_len=numbers.size("max_length"), bos=0, eos=0)
    assert torch.equal(found.tokens[:, 0], numbers["out/greedy_seq"])
    spoken = torch.arange(numbers.size("max_length")) < found.lengths
    torch.testing.assert_close(found.log_probs[:, 0][spoken], numbers["out/greedy_logprobs"][spoken], **close)


def test_three_beams(numbers, model):
    """The authors ban the unknown word, the last one, and rank by plain sums; their table of sums is in float32."""
    found = beam_search(
        model,
        model.encode(look(numbers)),
        beam_size=3,
        max_len=numbers.size("max_length"),
        bos=0,
        eos=0,
        length_penalty=0.0,
        banned=(numbers.size("unk"),),
        release_finished=True,
    )
    assert torch.equal(found.tokens, numbers["out/beam3_all_seq"])
    torch.testing.assert_close(found.scores, numbers["out/beam3_all_p_f32"], atol=1e-5, rtol=1e-5)
