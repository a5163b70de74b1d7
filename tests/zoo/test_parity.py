"""Every model that has its authors' numbers equals their code in float64: one table, the same questions for all.

Log-probabilities under teacher forcing, losses, the gradient of every parameter, greedy captions and beams; and the
authors' numbers of parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import zoo
from harness.training.self_critical import mean_of_all, self_critical_loss
from tests.zoo.conftest import Official
from tests.zoo.test_laws import close
from zoo.captioner import Captioner, Memory
from zoo.converter import converter_of, from_official
from zoo.decoding import beam_search, greedy
from zoo.layers.geometry import grid_cells

CELLS = grid_cells(7, 7, like=torch.zeros(1, dtype=torch.float64))
Memories = list[tuple[slice, Memory]]
Text = tuple[Tensor, Tensor, Tensor]
"""Words that go in, words that should come out (-1 where none is asked for), and the places that are compared."""


def labels(numbers: Official) -> Text:
    words, kept = numbers["in/labels"], numbers["in/masks"][:, 1:].bool()
    targets = words[:, 1:].masked_fill(~kept, -1)
    return words[:, :-1], targets, targets >= 0


def tokens(numbers: Official) -> Text:
    words, pad = numbers["in/tokens"], numbers.size("pad")
    targets = F.pad(words[:, 1:], (0, 1), value=pad)
    return words, targets.masked_fill(targets == pad, -1), words != pad


def named(inputs: str, targets: str) -> Callable[[Official], Text]:
    return lambda numbers: (numbers[inputs], numbers[targets], numbers[targets] >= 0)


def kept_targets(numbers: Official) -> Text:
    kept = numbers["in/target_keep"].bool()
    return numbers["in/dec_input"], numbers["in/target"].masked_fill(~kept, -1), kept


def unpadded(numbers: Official) -> Text:
    words = numbers["in/dec_input"]
    return words, words, torch.arange(words.shape[1]) < words.shape[1] - numbers["in/dec_num_pads"][:, None]


def regions(numbers: Official, model: Captioner) -> zoo.Visual:
    """Regions with a mask; an image vector of the authors' own becomes further channels of every region."""
    if model.visual.kind == "pooled":
        return zoo.Visual(numbers["in/fc_feats"][:, None])
    features = numbers["in/att_feats"]
    mask = numbers["in/att_masks" if "in/att_masks" in numbers else "in/att_mask"].bool()
    if model.visual.dim > features.shape[2]:
        features = torch.cat((features, numbers["in/fc_feats"][:, None].expand(-1, features.shape[1], -1)), 2)
    return zoo.Visual(features, mask, numbers.group("in/").get("boxes"))


def windows(numbers: Official, model: Captioner) -> zoo.Visual:
    seen = regions(numbers, model)
    side = numbers.size("grid")
    return replace(seen, boxes=grid_cells(side, side, like=CELLS).expand(seen.batch_size, -1, -1))


def padded(numbers: Official, _: Captioner) -> zoo.Visual:
    return zoo.Visual(numbers["in/regions_zero_padded"])


def masked(numbers: Official, _: Captioner) -> zoo.Visual:
    return zoo.Visual(numbers["in/regions"], numbers["in/regions"].sum(-1) != 0)


def grids(numbers: Official, _: Captioner) -> zoo.Visual:
    return zoo.Visual(numbers["in/grids"], boxes=CELLS.expand(len(numbers["in/grids"]), -1, -1))


def levels(numbers: Official, model: Captioner) -> zoo.Visual:
    grid = numbers["in/grids"].unflatten(1, (7, 7))
    return replace(masked(numbers, model), boxes=numbers["in/boxes"], grid=grid)


def cells(numbers: Official, _: Captioner) -> zoo.Visual:
    features = numbers["in/features"]
    return zoo.Visual(
        features, torch.arange(features.shape[1]) < features.shape[1] - numbers["in/enc_num_pads"][:, None]
    )


def scene_graph(numbers: Official, model: Captioner) -> zoo.Visual:
    """Their batches are cut to the most regions of an image; padding is told by masks."""
    seen, most = regions(numbers, model), int(numbers["in/att_masks"].sum(1).max())
    relations = numbers["in/rela_matrix"].long().masked_fill(~numbers["in/rela_masks"].bool()[..., None], -1)
    attributes = numbers["in/attr_matrix"].long().masked_fill(~numbers["in/attr_masks"].bool(), -1)
    return zoo.Visual(seen.features[:, :most], seen.mask[:, :most], relations=relations, attributes=attributes)


def see(look: Callable[[Official, Captioner], zoo.Visual]) -> Callable[[Official, Captioner], Memories]:
    return lambda numbers, model: [(slice(None), model.encode(look(numbers, model)))]


def each_alone(numbers: Official, model: Captioner) -> Memories:
    """Cells that the authors pad are not there: a grid has no mask here."""
    return [
        (
            slice(image, image + 1),
            model.encode(
                zoo.Visual(
                    numbers["in/reg_feat"][image : image + 1],
                    grid=numbers["in/gri_feat"][image, ~hidden][None, :, None],
                )
            ),
        )
        for image, hidden in enumerate(numbers["in/gri_mask"][:, 0, 0])
    ]


def labelled(mask: str) -> Callable[[Official, Captioner], Memories]:
    def encode(numbers: Official, model: Captioner) -> Memories:
        memory = model.encode_graph(numbers["in/att_feats"], numbers[mask].bool(), numbers["in/relation"])
        return [(slice(None), memory)]

    return encode


def sentences(dictionary: bool) -> Callable[[Official, Captioner], Memories]:
    def encode(numbers: Official, model: Captioner) -> Memories:
        image = F.pad(numbers["in/fc_feats"], (numbers["in/att_feats"].shape[2], 0))[:, None]
        objects, attributes = (
            numbers[f"in/{name}"].long().masked_fill(~numbers[f"in/{name}_masks"].bool(), -1)
            for name in ("ssg_obj", "ssg_attr")
        )
        hidden = ~numbers["in/ssg_rela_masks"].bool()[..., None]
        relations = numbers["in/ssg_rela_matrix"].long().masked_fill(hidden, -1)
        memory = model.encode_sentences(zoo.Visual(image), objects, attributes, relations, dictionary=dictionary)
        return [(slice(None), memory)]

    return encode


@dataclass(frozen=True)
class Beam:
    """A search: names of what it found, first captions or all, and how the authors search."""

    words: str = "out/beam3_seq"
    log_probs: str = ""
    scores: str = ""
    tolerance: float = 1e-10
    width: int = 3
    banned: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=lambda: {"length_penalty": 0.0})
    skip: int = 0
    """First positions of the authors' that hold no word of ours."""


@dataclass(frozen=True)
class Case:
    """A model with the weights and outputs of a file.

    Attributes:
        sizes: arguments, or the names of their numbers in the file.
        suffix: of the names of outputs and gradients; weights: of parameters beside those in common.
        loss: name, the smoothing of `smoothed`, and whether it is a sum.
        unsaid: whether the authors' log-probabilities of the end word in a greedy caption are another's.
    """

    model: str
    fixture: str
    encode: Callable[[Official, Captioner], Memories]
    text: Callable[[Official], Text]
    sizes: dict[str, Any] = field(default_factory=dict)
    suffix: str = ""
    prefix: str = "out/"
    weights: str = "param/"
    gradients: str = "grad"
    log_probs: str = "logprobs"
    loss: str = "loss_xe"
    summed: bool = False
    smoothed: tuple[str, float] | None = None
    greedy: tuple[str, str] | None = ("greedy_seq", "greedy_logprobs")
    unsaid: bool = False
    beams: tuple[Beam, ...] = ()

    def __str__(self) -> str:
        return f"{self.model}-{self.fixture}{self.suffix}"


def luo(model: str, fixture: str, **others: Any) -> Case:
    """Of ImageCaptioning.pytorch: plain sums rank, and what is finished leaves its place."""
    settings = {"length_penalty": 0.0, "release_finished": True}
    beams = (
        Beam(scores="out/beam3_all_p", settings=settings),
        Beam("out/beam3_seq_suppressUNK", banned=("unk",), settings=settings),
    )
    searched = fixture not in {"fc", "show_tell", "show_tell2"}
    return Case(
        model, fixture, see(regions), labels, smoothed=("loss_ls0.2", 0.2),
        greedy=("greedy_seq", "greedy_logprobs_full") if searched else None, beams=beams if searched else (), **others,
    )  # fmt: skip


def aoa(model: str, fixture: str, **sizes: Any) -> Case:
    """The authors ban the unknown word, and their table of sums is in float32."""
    settings = {"length_penalty": 0.0, "release_finished": True}
    beam = Beam("out/beam3_all_seq", scores="out/beam3_all_p_f32", tolerance=1e-5, banned=("unk",), settings=settings)
    sizes = {"n_heads": "heads", **sizes}
    return Case(model, fixture, see(regions), labels, sizes, smoothed=("loss_ls0.2", 0.2), beams=(beam,))


def meshed(model: str, look: Callable[[Official, Captioner], zoo.Visual], **others: Any) -> Case:
    """Plain sums rank, and what is finished keeps its place; as in all below."""
    return Case(
        model, model.split("/")[0], see(look), tokens, loss="loss_nll_ignorepad", unsaid=True,
        **{
            "sizes": {"n_heads": "h"},
            "greedy": ("greedy_seq", "greedy_logprobs_full"),
            "beams": (Beam(log_probs="out/beam3_logps"),),
            **others,
        },
    )  # fmt: skip


def sgae(model: str, suffix: str, encode: Callable[[Official, Captioner], Memories], **sizes: Any) -> Case:
    return Case(model, "sgae", encode, labels, sizes, suffix)


EXPANSION = {"n_heads": "num_heads", "static_lengths": "groups"}
BERT = {"bert": {"num_attention_heads": "bert_num_attention_heads"}}
X_LINEAR = {
    "text": named("in/input_seq", "in/target_seq"),
    "smoothed": ("loss_ls0.1", 0.1),
    "beams": (Beam(log_probs="out/beam3_logprobs"),),
}
SGAE_BEAM = {"length_penalty": 0.0, "release_finished": True}
CASES = [
    luo("updown", "updown"),
    luo("adaptive_attention", "adaatt"),
    luo("att2in", "att2in"),
    luo("att2in/embedded", "att2in2"),
    luo("att2all", "att2all2"),
    luo("show_tell/fc", "fc"),
    luo("show_tell/fc", "newfc"),
    luo("show_tell", "show_tell"),
    luo("show_tell", "show_tell2"),
    luo("transformer", "transformer", sizes={"n_heads": "num_att_heads"}),
    aoa("aoanet", "aoanet"),
    aoa("aoanet/no-refiner", "aoanet_wo_refine"),
    aoa("image_transformer", "image_transformer_model", graph="official"),
    meshed("m2", padded, greedy=None),
    meshed("get", masked),
    Case("get/no-fusion", "get", see(masked), tokens, {"n_heads": "h"}, prefix="out/nolstm_", loss="", greedy=None),
    meshed("rstnet", grids, sizes={"n_heads": "h", **BERT}, greedy=None, beams=()),
    Case(
        "rstnet", "rstnet", see(grids), tokens, {"n_heads": "h", **BERT, "leak": False}, suffix="-decoded",
        log_probs="forced_step_logprobs", loss="", unsaid=True, greedy=("greedy_seq", "greedy_logprobs_full"),
        beams=(Beam(log_probs="out/beam3_logps"),),
    ),
    meshed("dlct", levels),
    *(
        Case(
            name, "grit", each_alone, tokens, {"n_heads": "n_heads"}, suffix, weights=f"param{suffix}/",
            greedy=("greedy_seq", "greedy_logps"),
            beams=(Beam(f"out/beam3_seq{suffix}", f"out/beam3_logps{suffix}"),),
        )
        for name, suffix in (("grit", ""), ("grit/sequential", "_sequential"), ("grit/concatenated", "_concat"))
    ),
    Case("puret", "puret", see(windows), **X_LINEAR),
    Case("x_lan", "x_lan", see(regions), **X_LINEAR),
    Case("x_transformer", "x_transformer", see(regions), **X_LINEAR),
    Case(
        "gcn_lstm", "gcn_lstm", labelled("in/att_masks"), named("in/tokens_ids", "in/target_ids"),
        smoothed=("loss_ls0.1", 0.1), beams=(Beam(log_probs="out/beam3_logps"),),
    ),
    Case(
        "gcn_lstm", "gcn_lstm", labelled("in/att_masks_pad2"), named("in/tokens_ids", "in/target_ids"),
        suffix="_pad2", loss="", greedy=("greedy_seq", ""),
    ),
    *(
        replace(
            sgae(name, suffix, see(look), graph=graph),
            beams=(
                Beam(
                    f"out/beam3_all_seq{suffix}", scores=f"out/beam3_all_p{suffix}", tolerance=1e-6, banned=("unk",),
                    settings=SGAE_BEAM,
                ),
            ),
        )
        for name, suffix, look, graph in (("sgae", "", scene_graph, "given"), ("sgae", "_norela", scene_graph, "none"))
    ),
    *(sgae("sgae/sentences", f"_mode{mode}", sentences(bool(mode)), graph="given") for mode in (0, 1)),
    Case(
        "expansionnet_v2", "expansionnet_model", see(cells), kept_targets, EXPANSION, gradients="grad/param",
        log_probs="log_probs", loss="nll_sum", summed=True, greedy=None,
    ),
    Case(  # version 1 is version 2 with one group
        "expansionnet_v2", "expansionnet_v1_model", see(cells), unpadded,
        {"n_heads": "num_heads", "static_lengths": "num_exp_enc"}, log_probs="log_probs", loss="", greedy=None,
    ),
    *(
        Case(
            "expansionnet_v2", "expansionnet_beam", see(cells), kept_targets, EXPANSION, suffix=f"-{width}",
            log_probs="", loss="", greedy=None,
            beams=(
                Beam(
                    *(f"out/beam{width}_{what}" for what in ("tokens", "log_probs", "scores")), width=width, skip=1,
                    settings={"count_bos": True},
                ),
            ),
        )
        for width in (1, 3, 5)
    ),
]  # fmt: skip


def own_image(numbers: Official, found: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights or gradients where an image vector of its own becomes further channels of every region: the weights on
    regions ignore them, and those on the mean read them alone."""
    wide = numbers["in/att_feats"].shape[2]
    if "fc_embed.0.weight" in found:
        deep = found["fc_embed.0.weight"].shape[1]
        found["fc_embed.0.weight"] = F.pad(found["fc_embed.0.weight"], (wide, 0))
        if "att_embed.0.weight" in found:
            found["att_embed.0.weight"] = F.pad(found["att_embed.0.weight"], (0, deep))
    return found


def of_case(case: Case, numbers: Official, group: str) -> dict[str, Tensor]:
    found = numbers.group(group)
    if case.fixture == "grit":  # all kinds of heads have the same network of the grid
        shared = numbers.group(f"{group.split('/')[0].split('_')[0]}/")
        found = {key: tensor for key, tensor in shared.items() if key.startswith("grid_net.")} | found
    if case.model == "get/no-fusion":
        found = {key: tensor for key, tensor in found.items() if ".rnn." not in key}
    return own_image(numbers, found) if case.fixture in {"updown", "adaatt", "sgae"} else found


def load(case: Case) -> tuple[Official, Captioner]:
    """The file, and the model with its weights."""
    numbers = Official(case.fixture)
    weights = of_case(case, numbers, case.weights)
    if case.fixture not in {"rstnet", "dlct"}:  # their buffers are codes of places, which are computed here
        weights |= numbers.group("buffer/")
    sizes = {
        name: numbers.size(value) if isinstance(value, str) and f"cfg/{value}" in numbers else value
        for name, value in case.sizes.items()
    }
    if "bert" in sizes:
        told = converter_of(case.model).sizes(weights)["bert"]
        sizes["bert"] = told | {size: numbers.size(name) for size, name in sizes["bert"].items()}
    if "static_lengths" in sizes:
        lengths = sizes["static_lengths"]
        sizes["static_lengths"] = (lengths,) if isinstance(lengths, int) else tuple(lengths)
    return numbers, from_official(case.model, weights, **sizes).eval()


@pytest.mark.parametrize("case", [case for case in CASES if case.log_probs], ids=str)
def test_log_probabilities_losses_and_gradients(case: Case) -> None:
    numbers, model = load(case)
    inputs, targets, places = case.text(numbers)
    memories = case.encode(numbers, model)
    log_probs = torch.cat([model.decode(memory, inputs[rows]) for rows, memory in memories]).log_softmax(-1)
    suffix = "" if case.suffix.startswith("-") else case.suffix
    close(log_probs[places], numbers[f"{case.prefix}{case.log_probs}{suffix}"][places])
    if not case.loss:
        return
    spoken = targets >= 0
    loss = F.nll_loss(log_probs[spoken], targets[spoken], reduction="sum" if case.summed else "mean")
    close(loss, numbers[f"out/{case.loss}{suffix}"])
    if case.smoothed is not None:
        name, amount = case.smoothed
        wanted = torch.full_like(log_probs[spoken], amount / (model.vocab_size - 1))
        wanted.scatter_(1, targets[spoken][:, None], 1 - amount)
        close((wanted * (wanted.log() - log_probs[spoken])).sum(-1).mean(), numbers[f"out/{name}"])
    loss.backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    expected = converter_of(case.model).tensors(of_case(case, numbers, f"{case.gradients}{suffix}/"))
    expected = {name: gradient for name, gradient in expected.items() if not name.startswith(("ssg_",))}
    if case.fixture in {"updown", "adaatt", "sgae"}:
        for name in ("region_embedding.0.weight", "image_embedding.0.weight"):
            if name in expected:
                found[name] = torch.where(expected[name] == 0, 0.0, found[name])
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-10, rtol=1e-10, msg=name)


def ends(numbers: Official) -> dict[str, int]:
    for bos, eos in (("bos", "eos"), ("SOS", "EOS")):
        if f"cfg/{bos}" in numbers:
            return {"bos": numbers.size(bos), "eos": numbers.size(eos)}
    return {"bos": 0, "eos": 0}


@pytest.mark.parametrize("case", [case for case in CASES if case.greedy], ids=str)
@torch.no_grad()
def test_greedy_captions(case: Case) -> None:
    """The authors go on after the end, with words that mean nothing."""
    numbers, model = load(case)
    suffix = "" if case.suffix.startswith("-") else case.suffix
    words = numbers[f"out/{case.greedy[0]}{suffix}"]
    for rows, memory in case.encode(numbers, model):
        found = greedy(model, memory, max_len=words.shape[1], **ends(numbers))
        spoken = torch.arange(words.shape[1]) < found.lengths
        assert torch.equal(found.tokens[:, 0][spoken], words[rows][spoken])
        if case.greedy[1]:
            log_probs = numbers[f"out/{case.greedy[1]}{suffix}"][rows]
            log_probs = log_probs.gather(2, words[rows][..., None])[..., 0] if log_probs.dim() == 3 else log_probs
            said = spoken & (words[rows] != ends(numbers)["eos"]) if case.unsaid else spoken
            close(found.log_probs[:, 0][said], log_probs[said])


@pytest.mark.parametrize(("case", "beam"), [(case, beam) for case in CASES for beam in case.beams], ids=str)
@torch.no_grad()
def test_beams(case: Case, beam: Beam) -> None:
    numbers, model = load(case)
    words = numbers[beam.words][..., beam.skip :]
    for rows, memory in case.encode(numbers, model):
        banned = tuple(numbers.size(name) for name in beam.banned)
        settings = {**ends(numbers), **beam.settings}
        found = beam_search(model, memory, beam_size=beam.width, max_len=words.shape[-1], banned=banned, **settings)
        which = slice(None) if words.dim() == 3 else 0
        kept = torch.arange(words.shape[-1]) < found.lengths[:, which, None]
        assert torch.equal(found.tokens[:, which][kept], words[rows][kept])
        if beam.log_probs:
            close(found.log_probs[:, which], numbers[beam.log_probs][rows][..., beam.skip :])
        if beam.scores:
            close(found.scores, numbers[beam.scores][rows], beam.tolerance)


@pytest.mark.parametrize("name", ["m2", "dlct", "rstnet-decoded"])
def test_beams_with_rewards_and_their_gradient(name: str) -> None:
    """-mean over all steps of log p, times the reward less the mean reward of the beams, averaged over beams."""
    [case] = [case for case in CASES if f"{case.model}{case.suffix}" == name]
    numbers, model = load(case)
    theirs = numbers["out/beam3_logps"]
    images, beams, steps = theirs.shape
    [(_, memory)] = case.encode(numbers, model)
    settings = {"beam_size": beams, "max_len": steps, "length_penalty": 0.0, **ends(numbers)}
    found = beam_search(model, memory, **settings, gradients=True)
    said = (torch.arange(steps) < found.lengths[..., None]).flatten(0, 1)
    torch.manual_seed(0)
    rewards = torch.rand(images, beams, dtype=torch.float64)
    expected = (-theirs.mean(-1) * (rewards - rewards.mean(-1, keepdim=True))).mean()
    advantages = (rewards - mean_of_all(rewards)).flatten()
    loss = self_critical_loss(found.log_probs.flatten(0, 1), said, advantages, "steps", steps)
    torch.testing.assert_close(loss, expected, atol=1e-12, rtol=0)
    loss.backward()
    learnt = {key: part.grad for key, part in model.named_parameters() if part.grad is not None}
    model.zero_grad()
    words = found.tokens.flatten(0, 1)
    inputs = torch.cat((torch.full_like(words[:, :1], ends(numbers)["bos"]), words[:, :-1]), 1)
    [(_, memory)] = case.encode(numbers, model)
    forced = model.decode(memory, inputs).log_softmax(-1).gather(-1, words[..., None])[..., 0]
    self_critical_loss(forced, said, advantages, "steps", steps).backward()
    for key, part in model.named_parameters():
        if part.grad is not None:
            torch.testing.assert_close(learnt[key], part.grad, atol=1e-10, rtol=1e-8, msg=key)


POSITIONS = 55 * 512
"""The authors of M2 and its descendants count their frozen table of positions, which is no parameter here."""
UNUSED_GATE = 1_574_400
GRIT = {"visual_dim": 512, "grid_dim": 1024, "embed_regions": False}
PUBLISHED: list[tuple[str, int, dict[str, Any], int]] = [
    # Name, rows of the vocabulary, further arguments, and the authors' number of parameters.
    ("show_tell/fc", 9_488, {}, 13_400_848),
    ("show_tell", 9_488, {}, 12_871_440),
    ("att2in", 9_488, {}, 15_762_193),
    ("att2in/embedded", 9_488, {}, 14_451_985),
    ("att2all", 9_488, {}, 15_239_953),
    ("adaptive_attention", 9_488, {}, 17_339_665),
    ("updown", 9_488, {}, 52_125_025),
    ("transformer", 9_488, {}, 54_914_832),
    ("updown", 10_370, {}, 53_889_907),
    ("m2", 10_201, {}, 38_439_424 - POSITIONS),
    ("get", 10_201, {}, 37_279_744 - POSITIONS),
    ("get/no-fusion", 10_201, {}, 35_178_496 - POSITIONS),
    ("dlct", 10_201, {}, 63_036_424 - POSITIONS),
    ("grit", 10_201, GRIT, 39_372_800 - UNUSED_GATE - POSITIONS),
    ("grit/sequential", 10_201, GRIT, 36_224_000 - POSITIONS),
    ("grit/concatenated", 10_201, GRIT, 33_069_056 - POSITIONS),
    ("aoanet", 10_370, {}, 87_369_858),
    ("image_transformer", 10_370, {}, 82_121_858),
    ("x_lan", 9_488, {}, 75_189_781),
    ("x_transformer", 9_488, {}, 137_521_826),
    ("puret", 9_488, {"visual_dim": 1536, "max_len": 99}, 34_212_968 - 100 * 512),
    ("gcn_lstm", 10_200, {"graph": "given"}, 72_872_942),
    ("expansionnet_v2", 10_000, {"visual_dim": 1536}, 38_604_560),
    ("sgae", 10_370, {"graph": "given"}, 116_458_982 - 43_048_050 + 10_000_000),  # with the dictionary
    ("sgae/sentences", 10_370, {"graph": "given"}, 116_458_982 + 10_000_000 - 2_001_513),  # less what no output needs
    ("cgru/paper-size", 5_066, {"visual_dim": 1024}, 2_460_490),
    ("cgru", 5_066, {}, 2_722_634),
    ("cgru/x2", 5_066, {}, 5_961_418),
    ("cgru/mha", 5_066, {"visual_dim": 1024}, 2_460_490 + 919_296),
]


@pytest.mark.parametrize(("name", "words", "arguments", "parameters"), PUBLISHED)
def test_numbers_of_parameters_are_the_authors(
    name: str, words: int, arguments: dict[str, Any], parameters: int
) -> None:
    with torch.device("meta"):
        model = zoo.create_model(name, **{"vocab_size": words, "visual_dim": 2048, **arguments})
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_parameters_of_rstnet() -> None:
    """The captioner, and the language model without its pooler and head, which are unused, all of it frozen."""
    bert = {"vocab_size": 30_522, "hidden_size": 768, "num_hidden_layers": 12}
    with torch.device("meta"):
        model = zoo.create_model("rstnet", vocab_size=10_201, visual_dim=2048, bert=bert)
    signal = sum(parameter.numel() for parameter in model.language.parameters())
    assert sum(parameter.numel() for parameter in model.parameters()) - signal == 38_071_816 - POSITIONS
    assert signal == 118_290_649 - POSITIONS - (768 * 768 + 768) - (512 * 10_201 + 10_201)
    assert not any(parameter.requires_grad for parameter in model.language.parameters())
