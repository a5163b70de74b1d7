"""SGAE's auto-encoder of sentence graphs equals the authors' in float64, with the dictionary and without."""

import pytest
import torch

import zoo
from tests.zoo.test_laws import look, tiny, words
from zoo.decoding import greedy
from zoo.weights import from_official, sgae

close = {"atol": 1e-10, "rtol": 1e-10}
both = pytest.mark.parametrize("mode", [0, 1])


def load(official):
    numbers = official("sgae", sgae.zoo_name)
    model = from_official("sgae/sentences", numbers.group("param/"), graph="given")
    return numbers, model.eval()


def graph(numbers):
    """Their graphs, -1 where padded."""
    parts = []
    for name, mask in (("ssg_obj", "ssg_obj_masks"), ("ssg_attr", "ssg_attr_masks")):
        parts.append(numbers[f"in/{name}"].long().masked_fill(~numbers[f"in/{mask}"].bool(), -1))
    padded = ~numbers["in/ssg_rela_masks"].bool()[..., None]
    return (*parts, numbers["in/ssg_rela_matrix"].long().masked_fill(padded, -1))


@both
def test_teacher_forcing(official, mode):
    numbers, model = load(official)
    memory = model.encode_sentence_graph(*graph(numbers), numbers["in/fc_feats"], dictionary=mode == 1)
    theirs = numbers[f"out/graph_masks_mode{mode}"].bool()
    assert torch.equal(memory.mask.sum(1), theirs.sum(1))
    nodes = numbers["out/dictionary_mode1" if mode else "out/graph_feats_mode0"]
    torch.testing.assert_close(memory.features[memory.mask], nodes[theirs], **close)
    labels, spoken = numbers["in/labels"], numbers["in/masks"][:, 1:].bool()
    log_probs = model.decode(memory, labels[:, :-1]).log_softmax(-1)
    torch.testing.assert_close(log_probs[spoken], numbers[f"out/logprobs_mode{mode}"][spoken], **close)
    loss = -log_probs.gather(2, labels[:, 1:, None])[..., 0][spoken].mean()
    torch.testing.assert_close(loss, numbers[f"out/loss_xe_mode{mode}"], **close)
    loss.backward()
    gradients = sgae.zoo_tensors(numbers.group(f"grad_mode{mode}/"))
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert found.keys() == gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(found[name], gradient, **close, msg=name)


@both
@torch.no_grad()
def test_greedy_search(official, mode):
    numbers, model = load(official)
    memory = model.encode_sentence_graph(*graph(numbers), numbers["in/fc_feats"], dictionary=mode == 1)
    found = greedy(model, memory, max_len=numbers.size("seq_length"), bos=0, eos=0)
    kept = torch.arange(numbers.size("seq_length")) < found.lengths
    assert torch.equal(found.tokens[:, 0][kept], numbers[f"out/greedy_seq_mode{mode}"][kept])
    torch.testing.assert_close(found.log_probs[:, 0][kept], numbers[f"out/greedy_logprobs_mode{mode}"][kept], **close)


def test_the_captioner_of_images_is_untouched(official):
    """The same weights caption an image alike, whether the sentences' part is there or not."""
    numbers, model = load(official)
    alone = from_official("sgae", numbers.group("param/"), graph="given")
    with_sentences = model.state_dict()
    assert alone.state_dict().keys() == {name for name in with_sentences if not name.startswith("sentences.")}
    assert all(torch.equal(value, with_sentences[name]) for name, value in alone.state_dict().items())


def test_published_size():
    """The released model and its dictionary, less a layer and a vector that no output of it depends on."""
    with torch.device("meta"):
        model = zoo.create_model("sgae/sentences", vocab_size=10_370, visual_dim=2048, graph="given")
    unused = 2 * 1000 * 1000 + 1000 + 512 + 1
    assert sum(parameter.numel() for parameter in model.parameters()) == 116_458_982 + 10_000_000 - unused


@torch.no_grad()
def test_padding_changes_nothing_and_an_empty_graph_has_words():
    model = tiny("sgae", sentences=True)
    visual, tokens = look(model), words(6)
    objects = torch.tensor([[4, 5], [6, -1], [-1, -1], [4, 7], [9, 9], [3, -1]])
    attributes = torch.full((6, 2, 2), -1)
    attributes[0, 1, 0] = 8
    relations = torch.full((6, 1, 3), -1)
    relations[3, 0] = torch.tensor([0, 1, 10])
    logits = model.decode(model.encode_sentences(visual, objects, attributes, relations), tokens)
    assert logits.isfinite().all()
    padded = (
        torch.cat((objects, torch.full((6, 2), -1)), 1),
        torch.nn.functional.pad(attributes, (0, 1, 0, 2), value=-1),
        torch.cat((relations, torch.full((6, 3, 3), -1)), 1),
    )
    memory = model.encode_sentences(visual, *padded)
    torch.testing.assert_close(model.decode(memory, tokens), logits, **close)


@torch.no_grad()
@both
def test_stepping_equals_teacher_forcing(mode):
    model = tiny("sgae", sentences=True)
    objects, relations = torch.tensor([[4, 5]] * 3), torch.tensor([[[0, 1, 6]]] * 3)
    attributes = torch.full((3, 2, 1), 7)
    memory = model.encode_sentences(look(model), objects, attributes, relations, dictionary=mode == 1)
    tokens, state, logits = words(3), model.start(memory), []
    for position in range(tokens.shape[1]):
        step, state = model.step(tokens[:, position], state)
        logits.append(step)
    torch.testing.assert_close(torch.stack(logits, 1), model.decode(memory, tokens), **close)


def test_a_model_without_sentences_says_so():
    model = tiny("sgae")
    with pytest.raises(zoo.ZooError, match="no auto-encoder of sentence graphs"):
        model.encode_sentences(look(model), *(torch.zeros(3, 1, 1, dtype=torch.long),) * 3)
