"""Coverage, false positives and power of comparisons over seeds and images, by simulation with known variances.

    python -m pytest benchmarks/test_architecture_statistics.py -n 0 -s

Prints the tables of `docs/statistics.md`; `tests/results/statistics/simulated.py` says what is drawn, for BLEU
`counts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest
from scipy.special import digamma, polygamma, stdtrit

from harness.metrics.bleu import BLEU
from harness.metrics.contract import Statistics
from harness.metrics.influences import influences
from results.statistics.architecture import EstimatedDifference, ScoreSummary, estimate, summary
from results.statistics.significance import Array
from tests.results.statistics.simulated import IMAGES, simulated

SEEDS = (2, 3, 5, 10)
DEVIATIONS = (2.0, 4.0, 6.0, 9.0, 15.0)
TRIALS = 10_000
AT_ONCE = 250
POWER = 0.8
CHANCES = (0.65, 0.55, 0.5, 0.5)
"""Of a word to match, and of a match of order n - 1 to go on to order n, at effects of 0."""


@dataclass(frozen=True)
class Images:
    """What all models share, (N,) each: effects of difficulty, as skewed as images are, and reference lengths."""

    difficulty: Array
    reference: Array

    @classmethod
    def drawn(cls, generator: np.random.Generator, images: int) -> Images:
        return cls(0.6 * (1 - generator.standard_exponential(images)), generator.integers(8, 14, images))


def counts(
    generator: np.random.Generator, images: Images, seeds: int, deviation: float, shortfall: int = 1
) -> list[Statistics]:
    """Statistics of one model by seed.

    Effects add up on the logit of every chance: the image's difficulty; how the model takes to the image, with the
    standard deviation 0.3; the seed's, with `deviation`; that of seed and image together, with 0.3. Captions deviate
    from the reference's length by up to 3 words, and lack `shortfall` words on top: at 0 the brevity penalty sets in.
    """
    size = len(images.difficulty)
    own = images.difficulty + 0.3 * generator.standard_normal(size)
    found = []
    for effect in deviation * generator.standard_normal(seeds):
        logits = own + effect + 0.3 * generator.standard_normal(size)
        length = images.reference + generator.integers(-3, 4, size) - shortfall
        guessed = length[:, None] - np.arange(4)
        correct, before = [], length
        for order, chance in enumerate(CHANCES):
            chances = 1 / (1 + np.exp(-np.log(chance / (1 - chance)) - logits))
            before = generator.binomial(np.minimum(before, guessed[:, order]), chances)
            correct.append(before)
        values = np.column_stack([length, images.reference, guessed, *correct])
        found.append(Statistics(BLEU, values.astype(np.float64)))
    return found


def summaries(
    seeds: Sequence[int], deviations: Sequence[float], trials: int, images: int = IMAGES
) -> Iterator[list[ScoreSummary]]:
    generator = np.random.default_rng(2024)
    for _ in range(trials // AT_ONCE):
        yield [summary(scores) for scores in simulated(generator, AT_ONCE, seeds, deviations, images)]


def halves(found: EstimatedDifference, level: float = 0.95) -> Array:
    return np.asarray(stdtrit(found.degrees, (1 + level) / 2) * found.error)


def two_models(
    seeds: tuple[int, int], deviations: tuple[float, float], images: int = IMAGES, trials: int = TRIALS
) -> tuple[Array, Array]:
    """Differences, all of which are 0 in truth, and half the widths of their intervals."""
    found = [estimate(*pair) for pair in summaries(seeds, deviations, trials, images)]
    return np.concatenate([each.difference for each in found]), np.concatenate([halves(each) for each in found])


@pytest.mark.parametrize("seeds", SEEDS)
def test_intervals_cover_what_they_promise(seeds: int) -> None:
    for deviation in DEVIATIONS:
        differences, half = two_models((seeds, seeds), (deviation, deviation))
        missed = float(np.mean(np.abs(differences) > half))
        print(f"\n{seeds} seeds, deviation {deviation:g}: covered {1 - missed:.1%}, false {missed:.1%}, ", end="")
        print(f"median width {2 * np.median(half):.0f}", end="")
        assert 0.93 <= 1 - missed <= 0.97
        assert missed <= 0.055


def test_coverage_where_the_models_deviate_unequally() -> None:
    for seeds, deviations in [
        ((2, 2), (2.0, 15.0)),
        ((2, 10), (15.0, 2.0)),
        ((3, 3), (2.0, 15.0)),
        ((5, 5), (2.0, 15.0)),
    ]:
        differences, half = two_models(seeds, deviations)
        covered = float(np.mean(np.abs(differences) <= half))
        print(f"\nseeds {seeds}, deviations {deviations}: covered {covered:.1%}", end="")
        assert covered >= (0.88 if min(seeds) == 2 else 0.93)


@pytest.mark.parametrize("shortfall", [1, 0])
def test_intervals_of_bleu_cover_what_they_promise(shortfall: int) -> None:
    """By influences of images; at a shortfall of 0 the brevity penalty, which has a kink there, sets in."""
    generator = np.random.default_rng(2024)
    for seeds in (2, 3, 5):
        for deviation in (0.02, 0.1):
            covered, width, means = [], [], []
            for _ in range(2000):
                images = Images.drawn(generator, IMAGES)
                models = [
                    np.stack(
                        [influences(seed)[:, 3] for seed in counts(generator, images, seeds, deviation, shortfall)]
                    )
                    for _ in range(2)
                ]
                found = estimate(*map(summary, models))
                half = float(halves(found))
                covered.append(abs(float(found.difference)) <= half)
                width.append(200 * half)
                means.append(100 * models[0].mean(axis=1).std(ddof=1))
            spread = np.sqrt(np.mean(np.square(means)))
            print(f"\nBLEU-4, shortfall {shortfall}, {seeds} seeds that deviate by {spread:.1f} points: ", end="")
            print(f"covered {np.mean(covered):.1%}, median width {np.median(width):.1f}", end="")
            assert 0.935 <= np.mean(covered) <= 0.98


@pytest.mark.parametrize("models", [4, 8, 16])
def test_a_tables_places_are_seldom_wrong(models: int) -> None:
    """How often any two of equal models are told apart; of two seeds as `results.statistics.architecture` does it."""
    tests = models * (models - 1) // 2
    for seeds in (2, 3, 5):
        for deviations in ([6.0] * models, [2.0, 15.0] * (models // 2)):
            wrong = []
            for table in summaries([seeds] * models, deviations, 2000):
                told = np.zeros(AT_ONCE, bool)
                for pair in combinations(table, 2):
                    found = estimate(*pair)
                    found = found._replace(degrees=np.ones_like(found.degrees)) if seeds == 2 else found
                    told |= np.abs(found.difference) > halves(found, 1 - 0.05 / tests)
                wrong.append(told)
            print(f"\n{models} models, {seeds} seeds, {deviations[:2]}: any wrong {np.mean(wrong):.1%}", end="")
            assert np.mean(wrong) <= (0.05 if seeds == 2 else 0.10 if seeds == 3 else 0.06)


def test_what_seeds_and_images_can_detect() -> None:
    """The difference that is found four times in five, by images, seeds and the seeds' deviation."""
    found = {}
    for images in (300, 1000, 5000):
        for seeds in SEEDS:
            for deviation in (2.0, 6.0, 15.0):
                misses, half = two_models((seeds, seeds), (deviation, deviation), images, 1000)
                # A difference is found where the draw's own error leaves more of it than half the interval.
                found[images, seeds, deviation] = float(np.quantile(half - misses, POWER))
            row = [found[images, seeds, deviation] for deviation in (2.0, 6.0, 15.0)]
            print(f"\n| {images} | {seeds} | {' | '.join(f'{gap:.1f}' for gap in row)} |", end="")
    assert found[300, 10, 6.0] < found[300, 3, 6.0] < found[300, 2, 6.0]
    assert found[5000, 10, 2.0] < found[300, 10, 2.0]


def test_moderated_variances_do_not_cover() -> None:
    """Why seed variances are not shrunk towards the table's as limma does (Smyth 2004): models differ in them."""
    worst = {}
    for name, deviations in (("equal", [6.0] * 8), ("one of eight", [2.0] * 7 + [15.0])):
        for seeds in (2, 3, 5):
            covered = {"own": [], "moderated": []}
            for table in summaries([seeds] * 8, deviations, 2000):
                variances, degrees = moderated(np.stack([model.between for model in table], axis=1), seeds - 1)
                for one, two in combinations(range(8), 2):
                    found = estimate(table[one], table[two])
                    covered["own"].append((one, two, np.abs(found.difference) <= halves(found)))
                    left = found.error**2 - table[one].between - table[two].between
                    shrunk = variances[:, one] + variances[:, two]
                    squares = (variances[:, one] ** 2 + variances[:, two] ** 2) / degrees
                    total = shrunk + left
                    free = 1 / (squares / shrunk / total + left / total / (IMAGES - 1))
                    inside = np.abs(found.difference) <= halves(
                        EstimatedDifference(found.difference, np.sqrt(total), free)
                    )
                    covered["moderated"].append((one, two, inside))
            for way, trials in covered.items():
                pairs = {}
                for one, two, inside in trials:
                    pairs.setdefault((one, two), []).append(inside.mean())
                means = [np.mean(each) for each in pairs.values()]
                worst[name, seeds, way] = min(means)
                print(f"\n{name}, {seeds} seeds, {way}: mean {np.mean(means):.1%}, worst {min(means):.1%}", end="")
    assert worst["one of eight", 3, "moderated"] < 0.9 < worst["one of eight", 3, "own"]


def moderated(variances: Array, free: int) -> tuple[Array, Array]:
    """Variances (trials, models) shrunk by limma's `fitFDist`, and their degrees of freedom (trials,)."""
    logs = np.log(variances) - digamma(free / 2) + np.log(free / 2)
    centre = logs.mean(axis=1)
    excess = logs.var(axis=1, ddof=1) - polygamma(1, free / 2)
    half = np.geomspace(1e-3, 1e6, 100_000)
    prior = np.where(excess > 0, 2 * np.interp(-excess, -polygamma(1, half), half), 2e6)
    common = np.where(excess > 0, np.exp(centre + digamma(prior / 2) - np.log(prior / 2)), variances.mean(axis=1))
    shrunk = (prior * common)[:, None] + free * variances
    return shrunk / (prior + free)[:, None], np.minimum(prior + free, variances.shape[1] * free)
