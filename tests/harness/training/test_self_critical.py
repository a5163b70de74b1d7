"""Self-critical training: rewards, baselines and losses of the authors' code, and that it raises the reward."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from harness.config.schedule import Stage
from harness.data.batches import Batch
from harness.data.dataset import Sample
from harness.data.vocabularies import SubwordVocabulary
from harness.data.vocabulary import Vocabulary
from harness.metrics.cider import CiderReward
from harness.metrics.ngrams.frequencies import DocumentFrequencies
from harness.training import self_critical
from harness.training.self_critical import CaptionRewards, SelfCriticalLoss, mean_of_others, self_critical_loss
from zoo import Visual, create_model, model_card
from zoo.decoding import Hypotheses, greedy

FIXTURES = Path(__file__).parents[2] / "fixtures" / "training"


@pytest.fixture(scope="module")
def theirs() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FIXTURES / "self_critical_reward.json").read_text())
    return content


@pytest.fixture(scope="module")
def losses() -> dict[str, Tensor]:
    with np.load(FIXTURES / "losses.npz") as file:
        return {name: torch.from_numpy(file[name]) for name in file}


def training_images(captions: list[list[str]]) -> list[Sample]:
    return [Sample(number, f"{number}.png", "train", tuple(texts)) for number, texts in enumerate(captions)]


def hypotheses(samples: list[list[list[int]]]) -> Hypotheses:
    """Samples as a decoder gives them, zero after their end."""
    lengths = torch.tensor([[len(sample) for sample in image] for image in samples])
    tokens = torch.zeros(*lengths.shape, int(lengths.max()), dtype=torch.long)
    for image, mine in enumerate(samples):
        for number, sample in enumerate(mine):
            tokens[image, number, : len(sample)] = torch.tensor(sample)
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
    unknown = [vocabulary.unk, *known[1:]]
    found = rewards([1], hypotheses([[known, unknown]]))[0]
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
    rewards = CaptionRewards(images, Vocabulary.build(["a dog"], 1))
    assert rewards([1], hypotheses([[[4, 5, 2]]])).item() > 0


def test_the_token_average_is_that_of_luos_code(losses: dict[str, Tensor]) -> None:
    tokens = losses["in/seq"]
    log_probs = losses["in/logprobs"].gather(-1, tokens[..., None])[..., 0]
    ended = (tokens == 0).cumsum(1)
    mask = (ended == 0) | ((ended == 1) & (tokens == 0))
    loss = self_critical_loss(log_probs, mask, losses["in/reward"][:, 0], "tokens")
    torch.testing.assert_close(loss, losses["out/reward_criterion"], atol=1e-12, rtol=0)


def test_the_mean_of_others_as_baseline_and_its_gradient(losses: dict[str, Tensor]) -> None:
    tokens, all_log_probs = losses["in/seq"], losses["in/logprobs"].clone().requires_grad_()
    scores = losses["in/scores"].view(int(losses["cfg/N"]), int(losses["cfg/sample_n"]))
    advantages = (scores - mean_of_others(scores)).flatten()
    ended = (tokens == 0).cumsum(1)
    mask = (ended == 0) | ((ended == 1) & (tokens == 0))
    loss = self_critical_loss(all_log_probs.gather(-1, tokens[..., None])[..., 0], mask, advantages, "tokens")
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
        return CiderReward(frequencies)(references, grouped).flatten()

    drawn = reward(data["in/gen"])
    assert drawn == pytest.approx(data["out/ciderd_gen"], abs=1e-12)
    assert drawn - reward(data["in/greedy"]) == pytest.approx(data["out/reward"][:, 0], abs=1e-12)


def stage(**changes: Any) -> Stage:
    return Stage.model_validate(
        {
            "name": "scst", "objective": "self_critical", "epochs": 1, "batch_size": 4, "dropout": 0.0,
            "learning_rate": {"peak": 0.01}, "self_critical": {"max_len": 5, **changes},
        }
    )  # fmt: skip


@pytest.mark.parametrize("baseline", ["others", "greedy"])
@pytest.mark.parametrize("average", ["captions", "tokens"])
def test_training_raises_the_reward(baseline: str, average: str) -> None:
    torch.manual_seed(0)
    images = training_images([["red ball"], ["blue ball"], ["red cube"], ["blue cube"]])
    vocabulary = Vocabulary.build((caption for image in images for caption in image.captions), 1)
    model = create_model(
        "transformer_base", vocab_size=len(vocabulary), visual_dim=4, **model_card("transformer_base").tiny
    )
    model.train()
    model.set_dropout(0.0)
    visual = Visual(torch.eye(4)[:, None] * 3, torch.ones(4, 1, dtype=torch.bool))
    batch = Batch(visual, torch.ones(4, 2, dtype=torch.long), (0, 1, 2, 3))
    rewards = CaptionRewards(images, vocabulary)
    objective = SelfCriticalLoss(stage(baseline=baseline, average=average), vocabulary, rewards)

    def level() -> float:
        model.eval()
        found = greedy(model, model.encode(visual), max_len=5, bos=vocabulary.bos, eos=vocabulary.eos)
        model.train()
        return rewards(batch.image_ids, found).mean().item()

    before = level()
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(60):
        optimiser.zero_grad()
        objective(model, batch).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    assert level() > before + 1.0


def test_sampling_leaves_no_graph_and_the_models_mode_as_it_was() -> None:
    images = training_images([["red ball"], ["blue ball"]])
    vocabulary = Vocabulary.build(["red ball", "blue ball"], 1)
    model = create_model("blind", vocab_size=len(vocabulary), visual_dim=4, **model_card("blind").tiny).train()
    batch = Batch(Visual(torch.zeros(2, 1, 4), torch.ones(2, 1, dtype=torch.bool)), torch.ones(2, 2).long(), (0, 1))
    objective = SelfCriticalLoss(stage(), vocabulary, CaptionRewards(images, vocabulary))
    drawn, best = objective._explore(model, batch)
    assert best is None
    assert not drawn.log_probs.requires_grad
    assert drawn.tokens.shape == (2, 5, 5)
    assert model.training
    assert objective(model, batch).requires_grad
    assert objective.weight(batch) == 2


def test_without_end_in_reward_unfinished_captions_earn_as_much() -> None:
    images = training_images([["a red ball"], ["a blue ball"], ["one dog"]])
    vocabulary = Vocabulary.build(["a red ball", "a blue ball", "one dog"], 1)
    whole = vocabulary.encode("a red ball", 9)
    drawn = hypotheses([[whole, whole[:-1]]])
    with_end = CaptionRewards(images, vocabulary)([0], drawn)[0]
    assert with_end[0] > with_end[1] + 1
    without = CaptionRewards(images, vocabulary, with_end=False)([0], drawn)[0]
    assert without[0] == without[1] > 1


@pytest.mark.parametrize(("dropout", "modes"), [(False, {False}), (True, {True, False})])
def test_greedy_captions_are_always_without_dropout(dropout: bool, modes: set[bool]) -> None:
    images = training_images([["red ball"], ["blue ball"]])
    vocabulary = Vocabulary.build(["red ball", "blue ball"], 1)
    model = create_model("blind", vocab_size=len(vocabulary), visual_dim=4, **model_card("blind").tiny).train()
    batch = Batch(Visual(torch.zeros(2, 1, 4), torch.ones(2, 1, dtype=torch.bool)), torch.ones(2, 2).long(), (0, 1))
    settings = stage(baseline="greedy", sampling_dropout=dropout)
    seen: list[bool] = []
    encode = model.encode

    def watch(visual: Visual) -> Any:
        seen.append(model.training)
        return encode(visual)

    model.encode = watch  # type: ignore[method-assign]
    SelfCriticalLoss(settings, vocabulary, CaptionRewards(images, vocabulary))._explore(model, batch)
    assert set(seen) == modes
    assert seen[-1] is False
    assert model.training
