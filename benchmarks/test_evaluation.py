"""The evaluator against pycocoevalcap 1.2 on the same captions, in one run, at the size of COCO's Karpathy test split.

    pytest benchmarks/test_evaluation.py -n 0

5,000 images with 5 references each, spliced from COCO captions; for the reward 48 images with 5 samples and document
frequencies of 113,287 x 5 captions of words drawn as in English (Zipf). Processor seconds, children included, so that a
shared machine changes little; with METEOR wall-clock seconds. METEOR's own Java, which is the same on both sides, takes
nearly all of the time then.
"""

from __future__ import annotations

import gzip
import json
import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.cider.cider_scorer import CiderScorer, precook
from pycocoevalcap.meteor.meteor import Meteor
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

from harness.metrics import OVERALL, EvaluationSettings, Evaluator
from harness.metrics.cider import CiderReward
from harness.metrics.frequencies import DocumentFrequencies
from harness.metrics.java import bundled_java

IMAGES, REFERENCES, WORDS = 5_000, 5, 9_000
REWARD_IMAGES, SAMPLES, TRAINING_IMAGES = 48, 5, 113_287
EXPECTED = {"scores": 6.0, "scores and METEOR": 1.1, "reward": 20.0}

Numbers = list[list[list[int]]]
Texts = tuple[dict[int, list[str]], dict[int, str]]


def draw(generator: np.random.Generator, images: int, captions: int) -> Numbers:
    """Captions by image as word numbers: about 10.5 words, those of one image alike."""
    chances = 1 / np.arange(2, WORDS + 2) ** 1.05
    chances /= chances.sum()
    cumulated = np.cumsum(chances)
    lengths = generator.poisson(3.5, (images, captions)) + 7
    theme = np.searchsorted(cumulated, generator.random((images, 14)))
    pool = iter(np.searchsorted(cumulated, generator.random(int(lengths.sum()))).tolist())
    borrowed = iter((generator.random(int(lengths.sum())) < 0.5).tolist())
    places = iter(generator.integers(0, 14, int(lengths.sum())).tolist())
    return [
        [[int(theme[i, next(places)]) if next(borrowed) else next(pool) for _ in range(length)] for length in row]
        for i, row in enumerate(lengths.tolist())
    ]


@pytest.fixture(scope="module")
def texts() -> Texts:
    """References and one candidate an image: beginnings and ends of COCO captions of one image, put together anew."""
    file = Path(__file__).parents[1] / "tests" / "fixtures" / "evaluation" / "a_input.json.gz"
    with gzip.open(file, "rt", encoding="utf-8") as opened:
        images = [[image["cand"], *image["refs"]] for image in json.load(opened)["images"]]
    generator = np.random.default_rng(0)

    def splice(image: list[str]) -> str:
        start, end = (image[n].split() for n in generator.integers(0, len(image), 2).tolist())
        return " ".join([*start[: (len(start) + 1) // 2], *end[len(end) // 2 :]])

    written = [[splice(images[i % len(images)]) for _ in range(REFERENCES + 1)] for i in range(IMAGES)]
    return {i: image[1:] for i, image in enumerate(written)}, {i: image[0] for i, image in enumerate(written)}


@pytest.fixture(scope="module", autouse=True)
def bundled_runtime() -> Iterator[None]:
    """Both sides on the same Java."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{bundled_java().parent}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("BENCH_JAVA", str(bundled_java()))
        yield


def theirs(texts: Texts, *, meteor: bool) -> dict[str, float]:
    """Scores by pycocoevalcap, as its users compute them."""
    references, candidates = texts
    tokenizer = PTBTokenizer()
    wanted = tokenizer.tokenize({i: [{"caption": text} for text in image] for i, image in references.items()})
    given = tokenizer.tokenize({i: [{"caption": text}] for i, text in candidates.items()})
    scores = {"BLEU-4": Bleu(4).compute_score(wanted, given, verbose=0)[0][3]}
    scores["ROUGE-L"] = Rouge().compute_score(wanted, given)[0]
    scores["CIDEr-D"] = Cider().compute_score(wanted, given)[0]
    if meteor:
        scores["METEOR"] = Meteor().compute_score(wanted, given)[0]
    return scores


def ours(texts: Texts, *, meteor: bool) -> dict[str, float | None]:
    """Scores by the harness, a new evaluator each time."""
    with Evaluator(settings=EvaluationSettings(meteor=meteor)) as evaluator:
        evaluator.warm_up()
        found = evaluator.evaluate(*texts)
    return {metric: quantity.value for metric, quantity in found.scores[OVERALL].items()}


def processor_seconds() -> float:
    """Of this process and of its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def fastest(work: Callable[[], Any], clock: Callable[[], float], rounds: int = 2) -> float:
    """Seconds of the fastest of `rounds`."""
    seconds = []
    for _ in range(rounds):
        started = clock()
        work()
        seconds.append(clock() - started)
    return min(seconds)


@pytest.mark.parametrize("meteor", [False, True], ids=["scores", "scores and METEOR"])
def test_evaluation(benchmark: Any, texts: Texts, meteor: bool) -> None:
    """BLEU, ROUGE-L and CIDEr-D with tokenisation, without METEOR and with."""
    expected, found = theirs(texts, meteor=meteor), ours(texts, meteor=meteor)
    assert {metric: found[metric] for metric in expected} == pytest.approx(expected, abs=1e-12, rel=0)
    clock = time.perf_counter if meteor else processor_seconds
    rounds = 1 if meteor else 2
    reference = fastest(lambda: theirs(texts, meteor=meteor), clock, rounds)
    mine = fastest(lambda: ours(texts, meteor=meteor), clock, rounds)
    benchmark.pedantic(ours, args=(texts,), kwargs={"meteor": meteor}, rounds=1)
    ratio = reference / mine
    benchmark.extra_info |= {"pycocoevalcap seconds": reference, "seconds": mine, "ratio": ratio}
    print(f"\npycocoevalcap {reference:.2f} s, here {mine:.2f} s: {ratio:.1f} x")
    assert ratio > EXPECTED["scores and METEOR" if meteor else "scores"]


def test_reward(benchmark: Any) -> None:
    """CIDEr-D of a batch of samples; the same captions as strings of numbers for pycocoevalcap's scorer."""
    generator = np.random.default_rng(1)
    training = draw(generator, TRAINING_IMAGES, REFERENCES)
    references = training[:REWARD_IMAGES]
    samples = draw(generator, REWARD_IMAGES, SAMPLES)
    samples = [[image[0][:5] + sample[5:] for sample in mine] for image, mine in zip(references, samples, strict=True)]
    reward = CiderReward(DocumentFrequencies.of_numbers(training))
    frequencies: dict[tuple[str, ...], float] = {}
    for image in training:
        for ngram in {ngram for caption in image for ngram in precook(" ".join(map(str, caption)))}:
            frequencies[ngram] = frequencies.get(ngram, 0.0) + 1.0
    strings = [[" ".join(map(str, caption)) for caption in image] for image in references]
    sampled = [[" ".join(map(str, caption)) for caption in image] for image in samples]

    def by_pycocoevalcap() -> list[float]:
        scorer = CiderScorer(n=4, sigma=6.0)
        for image, mine in zip(strings, sampled, strict=True):
            for sample in mine:
                scorer += (sample, image)
        scorer.document_frequency = Frequencies(frequencies)
        scorer.crefs += [[]] * (TRAINING_IMAGES - len(scorer.crefs))
        scores: list[float] = scorer.compute_cider()
        return scores

    found = reward(references, samples)
    assert found.ravel() == pytest.approx(by_pycocoevalcap(), abs=1e-12, rel=0)
    reference = fastest(by_pycocoevalcap, time.process_time, 5)
    mine = fastest(lambda: reward(references, samples), time.process_time, 30)
    benchmark(reward, references, samples)
    ratio = reference / mine
    benchmark.extra_info |= {"pycocoevalcap seconds": reference, "seconds": mine, "ratio": ratio}
    print(f"\npycocoevalcap {1000 * reference:.1f} ms, here {1000 * mine:.1f} ms: {ratio:.1f} x")
    assert ratio > EXPECTED["reward"]


class Frequencies(dict[tuple[str, ...], float]):
    """Gives 0 for what is absent without storing it."""

    def __missing__(self, key: tuple[str, ...]) -> float:
        return 0.0
