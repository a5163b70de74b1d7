"""Self-critical training: rewards and losses of the authors' codes, the pass that is differentiated, and learning."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from harness.config.load import PRESETS, load_preset
from harness.config.schedule import Stage
from harness.data.batches import Batch
from harness.data.dataset import Sample
from harness.data.vocabularies import SubwordVocabulary
from harness.data.vocabulary import Vocabulary
from harness.inference import replay
from harness.metrics.cider import cider_rewards
from harness.metrics.ngrams import DocumentFrequencies, Tokenised
from harness.training import self_critical
from harness.training.self_critical import (
    CaptionRewards,
    SelfCriticalLoss,
    WholePrefixes,
    mean_of_all,
    mean_of_others,
    self_critical_loss,
)
from harness.training.stage import make_objective
from harness.utils.errors import BenchError
from zoo import Captioner, Visual, create_model, model_card
from zoo.decoding import Hypotheses, beam_search, sample
from zoo.layers import attention

FIXTURES = Path(__file__).parents[2] / "fixtures" / "training"


@pytest.fixture(scope="module")
def theirs() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FIXTURES / "self_critical_reward.json").read_text())
    return content


@pytest.fixture(scope="module")
def losses() -> dict[str, Tensor]:
    with np.load(FIXTURES / "losses.npz") as file:
        found = {name: torch.from_numpy(file[name]) for name in file}
    ended = (found["in/seq"] == 0).cumsum(1)
    return found | {"mask": (ended == 0) | ((ended == 1) & (found["in/seq"] == 0))}


def training_images(captions: list[list[str]]) -> list[Sample]:
    return [Sample(number, f"{number}.png", "train", tuple(texts)) for number, texts in enumerate(captions)]


def hypotheses(samples: list[list[list[int]]]) -> Hypotheses:
    """Samples as a decoder gives them, zero after their end."""
    lengths = torch.tensor([[len(sample) for sample in image] for image in samples])
    tokens = torch.zeros(*lengths.shape, int(lengths.max()), dtype=torch.long)
    for image, mine in enumerate(samples):
        for number, drawn in enumerate(mine):
            tokens[image, number, : len(drawn)] = torch.tensor(drawn)
    return Hypotheses(tokens, torch.zeros(tokens.shape), lengths, torch.zeros(lengths.shape))


def test_rewards_baselines_and_loss_of_expansionnet(theirs: dict[str, Any]) -> None:
    everything = [caption for image in theirs["raw_references"] for caption in image]
    vocabulary = Vocabulary.build(everything, 1, "expansionnet")
    numbers = {"EOS": vocabulary.eos} | {word: vocabulary.encode(word, 2)[0] for word in vocabulary.words}
    drawn = hypotheses([[[numbers[word] for word in sample[1:]] for sample in image] for image in theirs["sampled"]])
    rewards = CaptionRewards(training_images(theirs["raw_references"]), vocabulary)(theirs["image_idx"], drawn)
    torch.testing.assert_close(rewards, torch.tensor(theirs["reward"], dtype=torch.double), atol=1e-12, rtol=0)
    baseline = mean_of_others(rewards)
    torch.testing.assert_close(baseline, torch.tensor(theirs["baseline"], dtype=torch.double), atol=1e-12, rtol=0)

    width = max(len(row) for image in theirs["log_probs"] for row in image) - 1
    log_probs = torch.zeros(rewards.numel(), width, dtype=torch.double)
    for line, row in zip(log_probs, (row for image in theirs["log_probs"] for row in image), strict=True):
        line[: len(row) - 1] = torch.tensor(row[1:], dtype=torch.double)  # the begin token comes first
    mask = torch.arange(width) < drawn.lengths.flatten()[:, None]
    loss = self_critical_loss(log_probs, mask, (rewards - baseline).flatten(), "captions")
    assert loss.item() == pytest.approx(theirs["loss"], abs=1e-12)


def test_words_unknown_to_the_vocabulary_are_no_reward_to_sample() -> None:
    images = training_images([["a zebra runs", "a zebra walks"], ["a dog runs", "one dog"]])
    vocabulary = Vocabulary.build(["a dog runs"], 1)
    rewards = CaptionRewards(images, vocabulary)
    known = vocabulary.encode("dog runs", 9)
    found = rewards([1], hypotheses([[known, [vocabulary.unk, *known[1:]]]]))[0]
    assert found[0] > found[1]


@pytest.mark.parametrize("merges", [1, 50])
@pytest.mark.parametrize("with_end", [True, False])
def test_rewards_are_those_of_words_whatever_pieces_they_are_made_of(merges: int, with_end: bool) -> None:
    images = training_images([["a red ball", "the red ball"], ["a blue balloon", "balloons"], ["red balloons"]])
    everything = [caption for image in images for caption in image.captions]
    words, pieces = Vocabulary.build(everything, 1), SubwordVocabulary.build(everything, 1, merges=merges)
    captions = ["a red ball", "red balloon", "balloons balloons", "the blue ball"]

    def rewards(vocabulary: Vocabulary, cut: int = 0) -> Tensor:
        drawn = [vocabulary.encode(caption, 99) for caption in captions]
        rows = [row[: len(row) - cut] for row in drawn]
        return CaptionRewards(images, vocabulary, with_end)([0, 1], hypotheses([rows[:2], rows[2:]]))

    assert torch.equal(rewards(pieces), rewards(words))
    assert torch.equal(rewards(pieces, cut=1), rewards(words, cut=1))
    assert rewards(words).min() > 0
    scored = CaptionRewards(images, pieces, with_end)
    novel = scored([0], hypotheses([[pieces.encode("a rball", 99), pieces.encode("a", 99)]]))[0]
    assert novel[0] < novel[1]


def test_more_words_than_numbers_share_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_critical, "LAST_NUMBER", 9)
    images = training_images([[" ".join(f"w{at}" for at in range(20))], ["a dog"]])
    assert CaptionRewards(images, Vocabulary.build(["a dog"], 1))([1], hypotheses([[[4, 5, 2]]])).item() > 0


def test_the_token_average_is_that_of_luos_code(losses: dict[str, Tensor]) -> None:
    log_probs = losses["in/logprobs"].gather(-1, losses["in/seq"][..., None])[..., 0]
    loss = self_critical_loss(log_probs, losses["mask"], losses["in/reward"][:, 0], "tokens")
    torch.testing.assert_close(loss, losses["out/reward_criterion"], atol=1e-12, rtol=0)


def test_the_mean_of_others_as_baseline_and_its_gradient(losses: dict[str, Tensor]) -> None:
    tokens, all_log_probs = losses["in/seq"], losses["in/logprobs"].clone().requires_grad_()
    scores = losses["in/scores"].view(int(losses["cfg/N"]), int(losses["cfg/sample_n"]))
    advantages = (scores - mean_of_others(scores)).flatten()
    loss = self_critical_loss(all_log_probs.gather(-1, tokens[..., None])[..., 0], losses["mask"], advantages, "tokens")
    loss.backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(loss, losses["out/struct/new_self_critical"], atol=1e-12, rtol=0)
    theirs = losses["out/struct/new_self_critical_grad_logp"]
    torch.testing.assert_close(all_log_probs.grad, theirs, atol=1e-12, rtol=0)
    assert theirs.abs().max() > 0


def test_rewards_against_the_greedy_caption_are_those_of_luos_code() -> None:
    with np.load(FIXTURES / "ciderd_reward.npz") as file:
        data = dict(file)

    def packed(ngram: str) -> int:
        key = 0
        for word in ngram.split():
            key = (key << 16) | (int(word) + 1)
        return key

    order = np.argsort(keys := np.array([packed(ngram) for ngram in data["in/df_keys"]], dtype=np.uint64))
    frequencies = DocumentFrequencies(
        keys[order], data["in/df_values"][order].astype(np.int32), int(data["in/ref_len_count"])
    )

    def captions(rows: np.ndarray) -> list[list[int]]:
        """Up to and including the first 0; a row that has none was cut."""
        return [row[: row.index(0) + 1] if 0 in row else row for row in rows.tolist()]

    references = [captions(image) for image in data["in/gts"]]
    per_image = int(data["cfg/seq_per_img"])

    def reward(rows: np.ndarray) -> np.ndarray:
        samples = captions(rows)
        grouped = [samples[first : first + per_image] for first in range(0, len(samples), per_image)]
        return cider_rewards(references, grouped, frequencies).flatten()

    drawn = reward(data["in/gen"])
    assert drawn == pytest.approx(data["out/ciderd_gen"], abs=1e-12)
    assert drawn - reward(data["in/greedy"]) == pytest.approx(data["out/reward"][:, 0], abs=1e-12)


def test_without_end_in_reward_unfinished_captions_earn_as_much() -> None:
    images = training_images([["a red ball"], ["a blue ball"], ["one dog"]])
    vocabulary = Vocabulary.build(["a red ball", "a blue ball", "one dog"], 1)
    whole = vocabulary.encode("a red ball", 9)
    drawn = hypotheses([[whole, whole[:-1]]])
    with_end = CaptionRewards(images, vocabulary)([0], drawn)[0]
    assert with_end[0] > with_end[1] + 1
    without = CaptionRewards(images, vocabulary, with_end=False)([0], drawn)[0]
    assert without[0] == without[1] > 1


IMAGES = training_images([["red ball", "a red ball"], ["blue ball", "one blue ball"]])
VOCABULARY = Vocabulary.build([*(caption for image in IMAGES for caption in image.captions), "cube"], 1)
BATCH = Batch(
    Visual(torch.rand(2, 3, 8, generator=torch.Generator().manual_seed(1)).double(), torch.ones(2, 3).bool()),
    torch.ones(2, 2).long(),
    (0, 1),
)
ENDS = {"max_len": 6, "bos": VOCABULARY.bos, "eos": VOCABULARY.eos}


def tiny(name: str, dropout: float = 0.3) -> Captioner:
    torch.manual_seed(3)
    model = create_model(name, vocab_size=len(VOCABULARY), visual_dim=8, **model_card(name).tiny).double().train()
    model.set_dropout(dropout)
    return model


def objective(model: Captioner, **settings: Any) -> SelfCriticalLoss:
    stage = {
        "name": "scst", "objective": "self_critical", "epochs": 1, "batch_size": 2, "learning_rate": {"peak": 0.01},
        "self_critical": {"max_len": 6, "sampling_dropout": True, **settings},
    }  # fmt: skip
    made = make_objective(Stage.model_validate(stage), model, IMAGES, VOCABULARY)
    assert isinstance(made, SelfCriticalLoss)
    return made


@pytest.mark.parametrize(("dropout", "modes"), [(False, {False}), (True, {True, False})])
def test_greedy_captions_are_always_without_dropout(
    dropout: bool, modes: set[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, seen = tiny("blind"), list[bool]()
    encode = model.encode
    monkeypatch.setattr(model, "encode", lambda visual: seen.append(model.training) or encode(visual))
    objective(model, baseline="greedy", sampling_dropout=dropout)._search(model, BATCH)
    assert set(seen) == modes
    assert seen[-1] is False
    assert model.training


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Hypotheses]:
    """All that is drawn, as an objective sees it."""
    found: list[Hypotheses] = []

    def watch(name: str, search: Any) -> None:
        def watched(*arguments: Any, **settings: Any) -> Hypotheses:
            found.append(search(*arguments, **settings))
            return found[-1]

        monkeypatch.setattr(self_critical, name, watched)

    watch("sample", sample)
    watch("beam_search", beam_search)
    return found


@pytest.mark.parametrize("captions", ["sampled", "beams"])
@pytest.mark.parametrize("name", ["transformer_base", "updown", "expansionnet_v2"])
@pytest.mark.parametrize(
    ("gradient", "dropout", "same"),
    [("steps", 0.3, True), ("prefixes", 0.3, True), ("second-pass", 0.3, False), ("second-pass", 0.0, True)],
)
def test_log_probabilities_of_drawing_are_those_differentiated(
    name: str, gradient: str, dropout: float, same: bool, captions: str, drawn: list[Hypotheses],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    learnt: list[Tensor] = []
    loss_of = self_critical.self_critical_loss

    def watched(log_probs: Tensor, *others: Any) -> Tensor:
        learnt.append(log_probs)
        return loss_of(log_probs, *others)

    monkeypatch.setattr(self_critical, "self_critical_loss", watched)
    model = tiny(name, dropout)
    loss = objective(model, gradient=gradient, captions=captions)(model, BATCH)
    [found], [log_probs] = drawn, learnt
    said = torch.arange(log_probs.shape[1]) < found.lengths.flatten()[:, None]
    of_drawing = found.log_probs.flatten(0, 1)[:, : log_probs.shape[1]]
    assert log_probs.requires_grad
    assert torch.allclose(log_probs[said], of_drawing[said].to(log_probs), atol=1e-5) == same
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert model.training


def test_the_gradient_is_the_slope_under_the_masks_of_drawing() -> None:
    model = tiny("updown")
    learning = objective(model, gradient="steps", baseline="greedy")
    weight = next(parameter for name, parameter in model.named_parameters() if name == "vocabulary.weight")
    direction = torch.randn(weight.shape, dtype=weight.dtype)

    def loss() -> Tensor:
        torch.manual_seed(7)  # the same masks and draws
        return learning(model, BATCH)

    loss().backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    slope = (weight.grad * direction).sum().item()
    with torch.no_grad():
        weight += 1e-6 * direction
        above = loss().item()
        weight -= 2e-6 * direction
        below = loss().item()
    assert (above - below) / 2e-6 == pytest.approx(slope, rel=1e-5)
    assert abs(slope) > 1e-3


def dropped(gradient: str) -> tuple[set[str], set[str]]:
    """The sites of dropout that drawing passes after the encoder, and all that there are after it."""
    model = tiny("expansionnet_v2")
    names = {module: name for name, module in model.named_modules() if isinstance(module, nn.Dropout)}
    memory, seen = model.encode(BATCH.visual), set[str]()
    for module, name in names.items():
        module.register_forward_hook(lambda *_, name=name: seen.add(name))
    objective(model, gradient=gradient)._draw(model, memory)
    return seen, {name for name in names.values() if not name.startswith(("encoder", "input"))}


def test_whole_prefixes_pass_all_sites_of_dropout() -> None:
    seen, sites = dropped("prefixes")
    assert seen == sites
    seen, sites = dropped("steps")
    assert seen < sites


@pytest.mark.parametrize("name", ["expansionnet_v2", "x_transformer", "x_lan"])
def test_whole_prefixes_decode_as_the_model_does(name: str) -> None:
    model = tiny(name).eval()
    memory = model.encode(BATCH.visual)
    whole = WholePrefixes(model)
    assert list(whole.parameters()) == []
    expected, found = (beam_search(each, memory, beam_size=3, **ENDS) for each in (model, whole))
    assert torch.equal(found.tokens, expected.tokens)
    torch.testing.assert_close(found.log_probs, expected.log_probs, atol=1e-10, rtol=0)


def test_second_passes_come_in_few_widths(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is padded changes neither loss nor gradient."""
    widths: list[int] = []
    forward = Captioner.forward
    monkeypatch.setattr(replay, "run_checking_capture", lambda work: (work(), ""))
    monkeypatch.setattr(Captioner, "forward", lambda *given: widths.append(given[2].shape[1]) or forward(*given))
    found = []
    for few in ((), (6,)):
        model = tiny("transformer_base", 0.0)
        torch.manual_seed(54)  # draws short captions
        loss = replace(objective(model, gradient="second-pass", samples=2), widths=few)(model, BATCH)
        loss.backward()  # type: ignore[no-untyped-call]
        found.append((loss, *(weight.grad for weight in model.parameters())))
    assert widths[0] < widths[1] == 6
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("name", ["expansionnet_v2", "transformer_base"])
def test_fused_layers_are_concatenated_once_for_all_prefixes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gradient is the same, bit for bit."""
    joins: list[int] = []
    join = attention._concatenate
    monkeypatch.setattr(attention, "_concatenate", lambda layers: joins.append(len(layers)) or join(layers))

    def gradient() -> list[Tensor]:
        torch.manual_seed(3)
        joins.clear()
        model = tiny(name)
        objective(model, gradient="prefixes")(model, BATCH).backward()  # type: ignore[no-untyped-call]
        return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]

    once, count = gradient(), len(joins)
    monkeypatch.setattr(self_critical, "cache_fused_linears", nullcontext)
    for found, wanted in zip(once, gradient(), strict=True):
        assert torch.equal(found, wanted)
    assert count < len(joins)


@pytest.mark.parametrize("baseline", ["others", "mean"])
def test_beams_are_rewarded_against_their_mean(baseline: str, drawn: list[Hypotheses]) -> None:
    model = tiny("m2", 0.0)
    learning = objective(model, gradient="steps", captions="beams", baseline=baseline, average="steps")
    loss = learning(model, BATCH)
    [found] = drawn
    rewards = learning.rewards(BATCH.image_ids, found)
    against = mean_of_all(rewards) if baseline == "mean" else mean_of_others(rewards)
    expected = -(found.log_probs.sum(-1) / 6 * (rewards - against)).mean()
    torch.testing.assert_close(loss, expected.to(loss), atol=1e-10, rtol=0)
    assert found.tokens.shape == (2, 5, 6)
    assert (found.scores.diff(dim=1) <= 0).all(), "best first, by the plain sum"


def test_document_frequencies_may_count_captions() -> None:
    images = training_images([["a red ball", "a ball", "the red ball"], ["a blue cube", "one cube"], ["a dog"]])
    texts = [caption.split() for image in images for caption in image.captions]
    words = {word: number for number, word in enumerate(sorted({word for text in texts for word in text}), 1)}
    vocabulary = Vocabulary.build([" ".join(text) for text in texts], 1)
    said = ["a red ball", "a cube"]
    rows = [[vocabulary.encode(text, 9) for text in said]]
    found = CaptionRewards(images, vocabulary, False, "captions")([0], hypotheses(rows))
    numbers = [[words[word] for word in text] for text in texts]
    each = np.arange(len(numbers) + 1)
    frequencies = DocumentFrequencies.of_captions(Tokenised.of_numbers(numbers), each)
    expected = cider_rewards([numbers[:3]], [[[words[word] for word in text.split()] for text in said]], frequencies)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)
    assert abs(found - CaptionRewards(images, vocabulary, False)([0], hypotheses(rows))).max() > 0.1


def test_drawing_without_dropout_cannot_be_what_is_differentiated() -> None:
    with pytest.raises(BenchError, match="it needs sampling_dropout true"):
        load_preset("quick-scst", ("schedule.stages.1.self_critical.gradient=steps",))


def off_policy(stage: Stage) -> bool:
    """Whether the pass that is differentiated has a dropout that drawing has not, or other masks."""
    dropout = stage.dropout if stage.dropout_scale is None else stage.dropout_scale
    rewarded = stage.objective == "self_critical" and stage.self_critical.gradient == "second-pass"
    return rewarded and (dropout is None or dropout > 0)


@pytest.mark.parametrize("name", PRESETS)
def test_no_preset_learns_off_policy(name: str) -> None:
    assert not any(map(off_policy, load_preset(name).schedule.stages))


@pytest.mark.parametrize(
    "settings",
    [
        {"gradient": "second-pass", "baseline": "others", "average": "captions"},
        {"gradient": "second-pass", "baseline": "greedy", "average": "tokens"},
        {"gradient": "steps", "baseline": "others"},
        {"gradient": "steps", "baseline": "mean", "captions": "beams"},
    ],
)
def test_training_raises_the_reward(settings: dict[str, str]) -> None:
    images = training_images([["red ball"], ["blue ball"], ["red cube"], ["blue cube"]])
    batch = Batch(Visual(torch.eye(4, 8).double()[:, None] * 3, torch.ones(4, 1).bool()), BATCH.tokens, (0, 1, 2, 3))
    model = tiny("transformer_base", 0.2 if settings["gradient"] == "steps" else 0.0)
    stage = objective(model, **settings, max_len=5).stage
    learning = SelfCriticalLoss(stage, VOCABULARY, CaptionRewards(images, VOCABULARY))

    def level() -> float:
        drawn = sample(model, model.encode(batch.visual), n=50, **{**ENDS, "max_len": 5})
        return learning.rewards(batch.image_ids, drawn).mean().item()

    before = level()
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(30):
        optimiser.zero_grad()
        learning(model, batch).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    assert level() > before + 0.5
