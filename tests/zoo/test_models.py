"""What only single models do: faults of released code on request, arguments of their own, and what they refuse."""

from dataclasses import replace

import pytest
import torch

import zoo
from tests.zoo.test_laws import CHANNELS, IMAGES, VOCAB, close, look, stepped, tiny, words
from tests.zoo.test_parity import CASES, levels, load
from zoo.converter import from_official
from zoo.decoding import Ensemble
from zoo.models.adaptive_attention import SentinelAttention


@pytest.mark.parametrize(
    ("name", "wrong", "named"),
    [
        ("att2in", {"attended": "some"}, "attended"),
        ("cgru", {"d_model": 1}, "d_model"),
        ("cgru", {"look": "attention", "n_heads": 0}, "n_heads"),
        ("cgru", {"look": "attend"}, "look"),
        ("cgru", {"bottleneck": "lstm"}, "bottleneck"),
        ("cgru/paper-size", {"only_dim": 1024}, "1024 channels, not 6"),
        ("dlct", {"grid_side": 0}, "grid_side"),
        ("expansionnet_v2", {"encoder": "lstm"}, "encoder"),
        ("expansionnet_v2", {"decoder": "static"}, "decoder"),
        ("expansionnet_v2", {"visual_kind": "pixels"}, "visual_kind"),
        ("expansionnet_v2", {"d_model": 10, "n_heads": 4}, "n_heads"),
        ("expansionnet_v2", {"static_lengths": ()}, "static_lengths"),
        ("expansionnet_v2", {"static_lengths": (4, 0)}, "static_lengths"),
        ("expansionnet_v2", {"dynamic_length": 0}, "dynamic_length"),
        ("expansionnet_v2", {"n_decoder_layers": 0}, "n_decoder_layers"),
        ("gcn_lstm", {"graph": "semantic"}, "graph"),
        ("gcn_lstm", {"n_labels": 5}, "n_labels"),
        ("gcn_lstm", {"picture": (640,)}, "picture"),
        ("grit", {"heads": "none"}, "heads"),
        ("grit", {"embed_regions": False}, "embed_regions"),
        ("image_transformer", {"wide_layers": (1, 3)}, "wide_layers"),
        ("image_transformer", {"graph": "fast"}, "graph"),
        ("image_transformer", {"sub_transformers": 0}, "sub_transformers"),
        ("image_transformer", {"n_heads": 3}, "n_heads"),
        *(
            (name, {"visual_kind": "region"}, "visual_kind")
            for name in ("adaptive_attention", "att2in", "puret", "updown")
        ),
        ("puret", {"shift": 2}, "shift"),
        ("rstnet", {"leak": True}, "leak"),
        ("sgae", {"graph": "semantic"}, "graph"),
        ("sgae", {"n_graph_words": 3}, "n_graph_words"),
        ("sgae", {"n_entries": 0}, "n_entries"),
        ("show_tell", {"cell": "gru"}, "cell"),
        ("show_tell", {"n_layers": 0}, "n_layers"),
        ("x_lan", {"n_attention_layers": 0}, "n_attention_layers"),
    ],
)
def test_impossible_arguments_are_named(name, wrong, named):
    with pytest.raises(zoo.ZooError) as caught:
        tiny(name, **wrong)
    assert named in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("blip/small", "pixels"),
        ("dlct", "boxes"),
        ("dlct", "grid"),
        ("expansionnet_v2/end-to-end", "pixels"),
        ("gcn_lstm", "boxes"),
        ("gcn_lstm/semantic", "relations"),
        ("grit", "grid"),
        ("image_transformer", "boxes"),
        ("object_relation_transformer", "boxes"),
        ("puret", "boxes"),
        ("rstnet", "boxes"),
        ("sgae/graph", "attributes"),
        ("sgae/graph", "relations"),
        ("show_tell", "features"),
        ("transformer", "features"),
        ("updown", "features"),
    ],
)
def test_what_is_not_shown_is_asked_for(name, part):
    model = tiny(name)
    with pytest.raises(zoo.ZooError, match=r"need|given"):
        model.encode(replace(look(model), **{part: None}))


@pytest.mark.parametrize("name", ["m2", "get"])
def test_padding_is_masked_where_the_released_code_does_not(name):
    arguments = {**zoo.model_card(name).tiny, "vocab_size": 9, "visual_dim": 6}
    features, tokens = torch.rand(1, 5, 6).double(), torch.ones(1, 3, dtype=torch.long)
    padded = zoo.Visual(features, torch.tensor([[True, True, True, False, False]]))
    changed = {}
    for quirks in (False, True):
        torch.manual_seed(0)
        model = zoo.create_model(name, quirks=quirks, **arguments).double().eval()
        if name == "get":  # with gains of one, some embedded regions sum to zero
            torch.nn.init.uniform_(model.input.norm.weight)
        changed[quirks] = not torch.allclose(model(padded, tokens), model(zoo.Visual(features[:, :3]), tokens))
    assert changed == {False: False, True: True}


def test_gcn_lstm_convolves_padding_only_as_released():
    [case] = [case for case in CASES if case.suffix == "_pad2"]
    numbers, model = load(case)
    weights = numbers.group("param/")
    sane = from_official("gcn_lstm", weights, quirks=False).eval()
    [(_, memory)], [(_, other)] = case.encode(numbers, model), case.encode(numbers, sane)
    assert not torch.allclose(memory.features, other.features)


def test_m2_initialises_as_paper_or_as_released_code():
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
    ("name", "change"),
    [
        ("dlct", {"pixel_sizes": False}),
        ("rstnet", {"pixel_sizes": False}),
        ("gcn_lstm", {"identity": False}),
        ("gcn_lstm", {"graph": "regat", "picture": (640, 480)}),
        ("puret", {"global_once": True}),
    ],
)
@torch.no_grad()
def test_an_argument_makes_another_model_of_the_same_weights(name, change):
    fixed = {"n_labels": 13} if name == "gcn_lstm" else {}
    plain, other = tiny(name, **fixed), tiny(name, **{**fixed, **change})
    for parameter in plain.parameters():
        parameter.normal_(std=0.3)
    other.load_state_dict(plain.state_dict())
    seen, tokens = look(plain), words(IMAGES)
    assert not torch.allclose(other(seen, tokens), plain(seen, tokens))


@torch.no_grad()
def test_codes_of_places_can_be_left_out():
    model = tiny("dlct", codes=False)
    seen = look(model)
    assert not model.encode(seen).features.chunk(2, -1)[1].any()
    assert "box_code.weight" not in model.state_dict()
    moved = replace(seen, boxes=seen.boxes / 2)  # geometry and alignment see it all the same
    assert not torch.allclose(model(moved, words(IMAGES)), model(seen, words(IMAGES)))


@torch.no_grad()
def test_a_finer_grid_is_pooled():
    [case] = [case for case in CASES if case.model == "dlct"]
    numbers, model = load(case)
    seen = levels(numbers, model)
    finer = seen.grid.repeat_interleave(2, 1).repeat_interleave(2, 2)
    finer = finer + torch.tensor([[0.25, -0.25], [-0.25, 0.25]]).repeat(7, 7)[..., None]
    found, expected = (model.encode(each).features for each in (replace(seen, grid=finer), seen))
    close(found, expected)


@torch.no_grad()
def test_a_single_memory_has_values_first(official):
    """The same keys and values under either name, and in either order, give the same captioner."""
    numbers = official("image_transformer_model")
    several = {key: value for key, value in numbers.group("param/").items() if "implicit" not in key}
    one = dict(several)
    for part in ("weight", "bias"):
        implicit = numbers[f"param/core.implicit1.{part}"]
        several |= {f"core.implicit{number}.{part}": implicit for number in (1, 2)}
        one[f"ctx2att.{part}"] = implicit.roll(len(implicit) // 2, 0)
    visual = zoo.Visual(numbers["in/att_feats"], numbers["in/att_masks"].bool(), numbers["in/boxes"])
    models = (
        from_official("image_transformer/sub-1", one, n_heads=4).eval(),
        from_official("image_transformer/sub-2", several, n_heads=4).eval(),
    )
    close(*(model(visual, numbers["in/labels"]) for model in models))


@pytest.mark.parametrize(("name", "deeper"), [("show_tell", {"n_layers": 3}), ("x_lan", {"n_attention_layers": 3})])
@torch.no_grad()
def test_deeper_models_step_as_they_are_taught(name, deeper):
    model = tiny(name, **deeper)
    memory, tokens = model.encode(look(model)), words(IMAGES)
    close(stepped(model, memory, tokens), model.decode(memory, tokens))


@torch.no_grad()
def test_an_image_without_regions_is_seen_as_the_sentinel_alone():
    attention = SentinelAttention(6, 4, 0.5).double().eval()
    state, sentinel, regions = (torch.randn(*shape).double() for shape in ((4, 6), (4, 6), (2, 7, 6)))
    keys, attention_bias = attention.project(regions, torch.zeros(2, 7, dtype=torch.bool))
    found = attention(state, sentinel, keys, regions, attention_bias)
    expected = attention.sentinel(sentinel).relu() + attention.state(state).tanh()
    close(found, expected)


@torch.no_grad()
@pytest.mark.parametrize("name", ["aoanet", "image_transformer", "transformer_aoa", "cgru"])
def test_dropout_is_on_in_training_and_follows_its_setting(name):
    model = tiny(name)
    visual, tokens = look(model), words(IMAGES)
    still = model(visual, tokens)
    model.train()
    assert not torch.equal(model(visual, tokens), model(visual, tokens))
    model.set_dropout(0.0)
    torch.testing.assert_close(model(visual, tokens), still)


@torch.no_grad()
def test_a_semantic_graph_is_the_matrix_of_its_relations():
    model = tiny("gcn_lstm/semantic")
    visual = look(model)
    relations = torch.tensor([[[0, 1, 4], [2, 0, 3]], [[1, 0, 2], [1, 0, 7]], [[-1, -1, -1], [-1, -1, -1]]])
    labels = torch.zeros(3, visual.features.shape[1], visual.features.shape[1], dtype=torch.long)
    labels[0, 0, 1], labels[0, 2, 0], labels[1, 1, 0] = 4, 3, 7  # of one pair the highest counts
    found = model.encode(replace(visual, relations=relations))
    assert torch.equal(found.features, model.encode_graph(*model.valid_features(visual), labels).features)


@torch.no_grad()
def test_a_semantic_and_a_spatial_model_are_decoded_as_one():
    semantic, spatial = tiny("gcn_lstm/semantic"), tiny("gcn_lstm")
    for model in (semantic, spatial):
        torch.nn.init.normal_(model.convolution.label_bias)
    fused = Ensemble([semantic, spatial])
    assert fused.visual == semantic.visual
    visual, tokens = look(fused), words(IMAGES)
    expected = (semantic(visual, tokens).softmax(-1) + spatial(visual, tokens).softmax(-1)) / 2
    close(fused(visual, tokens).exp(), expected)
    with pytest.raises(zoo.ZooError, match="one kind of visual input"):
        Ensemble([semantic, tiny("sgae/graph")])


@torch.no_grad()
def test_a_row_of_a_graph_without_words_is_no_node():
    model = tiny("sgae", graph="given")
    relations, attributes = torch.full((3, 1, 3), -1), torch.tensor([[[0, 5]], [[1, -1]], [[-1, -1]]])
    memory = model.encode(replace(look(model), relations=relations, attributes=attributes))
    assert memory.mask[:, -1].tolist() == [True, False, False]
    assert memory.features.isfinite().all()


@torch.no_grad()
def test_words_of_graphs_alone_are_read_and_never_said():
    model = tiny("sgae/graph", n_graph_words=2)
    visual, count = look(model), model.vocab_size
    relations = torch.tensor([[[0, 1, count]], [[0, 1, count + 1]], [[0, 1, 3]]])
    memory = model.encode(replace(visual, relations=relations))
    assert memory.features.isfinite().all()
    other = model.encode(replace(visual, relations=relations.roll(1, 0)))
    assert not torch.equal(memory.features[:, 0], other.features[:, 0])
    assert model.decode(memory, torch.ones(3, 2, dtype=torch.long)).shape[-1] == count


def test_the_captioner_of_images_is_untouched_by_sentences(official):
    """The same weights caption an image alike, whether the sentences' part is there or not."""
    weights = official("sgae").group("param/")
    weights["fc_embed.0.weight"] = weights["att_embed.0.weight"]
    both, alone = (from_official(name, weights, graph="given").state_dict() for name in ("sgae/sentences", "sgae"))
    assert from_official("sgae/graph", weights).visual.graph == "words"
    assert alone.keys() == {name for name in both if not name.startswith("sentences.")}
    assert all(torch.equal(value, both[name]) for name, value in alone.items())


@torch.no_grad()
@pytest.mark.parametrize("dictionary", [False, True])
def test_sentences_of_padded_and_empty_graphs(dictionary):
    model = tiny("sgae", sentences=True)
    visual, tokens = look(model), words(6)
    objects = torch.tensor([[4, 5], [6, -1], [-1, -1], [4, 7], [9, 9], [3, -1]])
    attributes, relations = torch.full((6, 2, 2), -1), torch.full((6, 1, 3), -1)
    attributes[0, 1, 0] = 8
    relations[3, 0] = torch.tensor([0, 1, 10])
    memory = model.encode_sentences(visual, objects, attributes, relations, dictionary=dictionary)
    logits = model.decode(memory, tokens)
    assert logits.isfinite().all()
    padded = (
        torch.cat((objects, torch.full((6, 2), -1)), 1),
        torch.nn.functional.pad(attributes, (0, 1, 0, 2), value=-1),
        torch.cat((relations, torch.full((6, 3, 3), -1)), 1),
    )
    memory = model.encode_sentences(visual, *padded, dictionary=dictionary)
    close(model.decode(memory, tokens), logits)
    close(stepped(model, memory, tokens), logits)
    with pytest.raises(zoo.ZooError, match="no auto-encoder"):
        tiny("sgae").encode_sentences(visual, objects, attributes, relations)


def test_several_vectors_are_no_pooled_one():
    model = tiny("cgru")
    with pytest.raises(zoo.ZooError, match="one pooled vector"):
        model.encode(zoo.Visual(torch.zeros(1, 3, 6).double()))


def test_a_grid_for_windows_is_square():
    square = tiny("puret", visual_kind="grid")
    square.encode(zoo.Visual(torch.rand(1, 4, 6)))
    with pytest.raises(zoo.ZooError, match="5 tokens without boxes"):
        square.encode(zoo.Visual(torch.rand(1, 5, 6)))


CAPTIONS, LENGTH, CELLS = 3, 6, 5


def gru(x, h, cell):
    """Equations 6 and 7, gate by gate, with torch's two bias vectors."""
    width = h.shape[-1]
    w = {gate: cell.weight_ih[at * width : (at + 1) * width] for at, gate in enumerate("rzn")}
    u = {gate: cell.weight_hh[at * width : (at + 1) * width] for at, gate in enumerate("rzn")}
    b = {gate: cell.bias_ih[at * width : (at + 1) * width] for at, gate in enumerate("rzn")}
    d = {gate: cell.bias_hh[at * width : (at + 1) * width] for at, gate in enumerate("rzn")}
    r = torch.sigmoid(w["r"] @ x + b["r"] + u["r"] @ h + d["r"])
    z = torch.sigmoid(w["z"] @ x + b["z"] + u["z"] @ h + d["z"])
    n = torch.tanh(w["n"] @ x + b["n"] + r * (u["n"] @ h + d["n"]))
    return (1 - z) * n + z * h


def gated(model, state, features, _):
    return state * torch.tanh(model.glance.image.weight @ features[0])


def attended(model, state, features, mask):
    heads_of, width = model.glance, len(state)
    heads = []
    for head in range(heads_of.n_heads):
        rows = slice(head * width, (head + 1) * width)
        query = heads_of.query.weight[rows] @ state + heads_of.query.bias[rows]
        keys = [heads_of.keys.weight[rows] @ cell + heads_of.keys.bias[rows] for cell in features[mask]]
        weights = torch.stack([query @ key / width**0.5 for key in keys]).softmax(0)
        heads.append(sum(weight * key for weight, key in zip(weights, keys, strict=True)))
    return heads_of.output.weight @ torch.cat(heads) + heads_of.output.bias


@pytest.mark.parametrize(("how", "seen"), [("gate", gated), ("attention", attended)])
@pytest.mark.parametrize("bottleneck", ["gru", "linear"])
@torch.no_grad()
def test_logits_and_states_are_the_papers_equations(how, seen, bottleneck):
    model = zoo.create_model(
        "cgru", vocab_size=VOCAB, visual_dim=CHANNELS, d_model=8, look=how, bottleneck=bottleneck
    ).double()
    for parameter in model.parameters():  # biases included, some of which start at zero
        parameter.normal_(std=0.5)
    model.eval()
    cells = 1 if how == "gate" else CELLS
    features = torch.randn(IMAGES, cells, CHANNELS, dtype=torch.double)
    mask = torch.arange(cells) < torch.tensor([cells, max(cells - 2, 1), cells])[:, None]
    tokens = torch.randint(VOCAB, (IMAGES * CAPTIONS, LENGTH))
    logits, states = model.decode_with_states(model.encode(zoo.Visual(features, mask)), tokens)

    for row, caption in enumerate(tokens):
        h = torch.zeros(8, dtype=torch.double)
        for t, word in enumerate(caption):
            y = model.embedding.weight[word]
            between = gru(model.input.weight @ y, h, model.first)
            c = seen(model, between, features[row // CAPTIONS], mask[row // CAPTIONS])
            h = gru(c, between, model.second)
            b = gru(torch.cat((y, between, c)), h, model.bottleneck) if bottleneck == "gru" else torch.cat((y, h, c))
            narrow = model.projection.weight @ b + model.projection.bias
            expected = model.embedding.weight @ narrow + model.bias
            close(logits[row, t], expected)
            close(states[row, t], h)
