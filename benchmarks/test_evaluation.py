"""The evaluator against pycocoevalcap 1.2 on the same captions, in one run, at the size of COCO's Karpathy test split.

    pytest benchmarks/test_evaluation.py -n 0
    BENCH_REFERENCES=karpathy_test.json.gz BENCH_PREDICTIONS=viecap.json.gz pytest benchmarks/test_evaluation.py -n 0

By default 5,000 images of COCO val2014 with their references, as pycocoevalcap's own files hold them, and captions
spliced from two of these; for the reward 48 images with 5 samples and document frequencies of 113,287 x 5 captions of
words drawn as in English (Zipf). Both sides start anew in every round, Java included. Seconds of the clock and of the
processors, children included: the ratio has to hold in both. A first round, in which the scores are compared and
METEOR's paraphrases put into the user's cache, is not counted.
"""

import json
import os
import resource
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
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

from harness.data.formats.predictions import check_predictions, read_predictions
from harness.data.formats.references import read_references
from harness.metrics.cider import cider_rewards
from harness.metrics.contract import OVERALL
from harness.metrics.evaluator import Evaluator
from harness.metrics.java import bundled_java
from harness.metrics.ngrams import DocumentFrequencies, Tokenised
from harness.metrics.signature import EvaluationSettings
from harness.metrics.spice import SPICE_JAR, packaged_spice
from results.statistics.significance import Array

IMAGES, REFERENCES, WORDS = 5_000, 5, 9_000
REWARD_IMAGES, SAMPLES, TRAINING_IMAGES = 48, 5, 113_287
EXPECTED = {"scores": 6.0, "scores and METEOR": 1.5, "reward": 20.0}

Numbers = list[list[list[int]]]
Texts = tuple[Mapping[int, Sequence[str]], Mapping[int, str]]


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
    """References and one candidate an image: those of the files that the environment names, or of COCO val2014."""
    if "BENCH_REFERENCES" in os.environ:
        wanted = read_references(Path(os.environ["BENCH_REFERENCES"]))
        given = read_predictions(Path(os.environ["BENCH_PREDICTIONS"]))
        return check_predictions(given, wanted, allow_subset=False)[:2]
    with (
        zipfile.ZipFile(packaged_spice() / SPICE_JAR) as jar,
        jar.open("coco/annotations/captions_val2014.json") as file,
    ):
        annotations = json.load(file)["annotations"]
    captions: dict[int, list[str]] = {}
    for annotation in annotations:
        captions.setdefault(annotation["image_id"], []).append(annotation["caption"])
    references = {image_id: captions[image_id][:REFERENCES] for image_id in sorted(captions)[:IMAGES]}
    return references, {image_id: splice(*texts[:2]) for image_id, texts in references.items()}


def splice(one: str, other: str) -> str:
    """The first half of one caption and the second of the other."""
    start, end = one.split(), other.split()
    return " ".join([*start[: (len(start) + 1) // 2], *end[len(end) // 2 :]])


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
        found = evaluator.evaluate(*texts)
    return {metric: quantity.value for metric, quantity in found.scores[OVERALL].items()}


def processor_seconds() -> float:
    """Of this process and of its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def fastest(work: Callable[[], Any], clock: Callable[[], float], rounds: int) -> float:
    """Seconds of the fastest of `rounds`."""
    seconds = []
    for _ in range(rounds):
        started = clock()
        work()
        seconds.append(clock() - started)
    return min(seconds)


def clocks() -> Array:
    """Seconds of the clock and of the processors."""
    return np.array([time.perf_counter(), processor_seconds()])


@pytest.mark.parametrize("meteor", [False, True], ids=["scores", "scores and METEOR"])
def test_evaluation(benchmark: Any, texts: Texts, meteor: bool) -> None:
    """BLEU, ROUGE-L and CIDEr-D with tokenisation, without METEOR and with; both sides in turn, twice."""
    expected, found = theirs(texts, meteor=meteor), ours(texts, meteor=meteor)
    assert {metric: found[metric] for metric in expected} == pytest.approx(expected, abs=1e-12, rel=0)
    seconds = []
    for _ in range(2):
        started = clocks()
        theirs(texts, meteor=meteor)
        between = clocks()
        ours(texts, meteor=meteor)
        seconds.append((between - started, clocks() - between))
    reference, mine = np.min(seconds, axis=0)
    benchmark.pedantic(ours, args=(texts,), kwargs={"meteor": meteor}, rounds=1)
    ratios = reference / mine
    for name, *numbers in zip(("clock", "processors"), reference, mine, ratios, strict=True):
        benchmark.extra_info |= dict(zip((f"pycocoevalcap {name}", name, f"ratio {name}"), numbers, strict=True))
        print(f"\n{name}: pycocoevalcap {numbers[0]:.2f} s, here {numbers[1]:.2f} s: {numbers[2]:.1f} x", end="")
    assert ratios.min() > EXPECTED["scores and METEOR" if meteor else "scores"]


def test_reward(benchmark: Any) -> None:
    """CIDEr-D of a batch of samples; the same captions as strings of numbers for pycocoevalcap's scorer."""
    generator = np.random.default_rng(1)
    training = draw(generator, TRAINING_IMAGES, REFERENCES)
    references = training[:REWARD_IMAGES]
    samples = draw(generator, REWARD_IMAGES, SAMPLES)
    samples = [[image[0][:5] + sample[5:] for sample in mine] for image, mine in zip(references, samples, strict=True)]
    known = DocumentFrequencies.of_captions(
        Tokenised.of_numbers(caption for image in training for caption in image),
        np.arange(0, TRAINING_IMAGES * REFERENCES + 1, REFERENCES),
    )
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

    found = cider_rewards(references, samples, known)
    assert found.ravel() == pytest.approx(by_pycocoevalcap(), abs=1e-12, rel=0)
    reference = fastest(by_pycocoevalcap, time.process_time, 5)
    mine = fastest(lambda: cider_rewards(references, samples, known), time.process_time, 30)
    benchmark(cider_rewards, references, samples, known)
    ratio = reference / mine
    benchmark.extra_info |= {"pycocoevalcap seconds": reference, "seconds": mine, "ratio": ratio}
    print(f"\npycocoevalcap {1000 * reference:.1f} ms, here {1000 * mine:.1f} ms: {ratio:.1f} x")
    assert ratio > EXPECTED["reward"]


class Frequencies(dict[tuple[str, ...], float]):
    """Gives 0 for what is absent without storing it."""

    def __missing__(self, key: tuple[str, ...]) -> float:
        return 0.0
