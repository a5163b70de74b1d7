"""Coverage, false positives and power of comparisons over seeds and images, by simulation with known variances.

    python -m pytest benchmarks/test_architecture_statistics.py -n 0 -s

Prints the tables of `docs/statistics.md`; `tests/results/statistics/simulated.py` says what is drawn, for BLEU
`counts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import stdtrit

from harness.metrics.bleu import BLEU
from results.statistics.architecture import (
    MeanDifference,
    ScoreSummary,
    difference_of_means,
    error_and_degrees,
    p_of_t,
    summary,
    table_variances,
)
from results.statistics.estimate import ALPHA
from results.statistics.significance import Array, Statistics, holm, pseudo_values
from tests.results.statistics.simulated import IMAGES, simulated

SEEDS = (2, 3, 5, 10)
DEVIATIONS = (2.0, 4.0, 6.0, 9.0, 15.0)
TRIALS = 10_000
AT_ONCE = 250
POWER = 0.8
CHANCES = (0.65, 0.55, 0.5, 0.5)
"""Of a word to match, and of a match of order n - 1 to go on to order n, at effects of 0."""
NUMBERS_AT_ONCE = 12_000_000


class Setting(NamedTuple):
    """How many images, and the standard deviations by image: how a model takes to it, and seed and image together."""

    images: int
    to_image: float
    interaction: float


SCENES, PHOTOGRAPHS = Setting(300, 45, 85), Setting(1000, 11, 27)
"""As the drawn scenes and Flickr8k have them, in points."""
MORE_SCENES = SCENES._replace(images=1000)
TABLES = [
    (PHOTOGRAPHS, 3, 3, 4000),
    (PHOTOGRAPHS, 4, 3, 4000),
    (SCENES, 6, 3, 4000),
    (PHOTOGRAPHS, 10, 3, 2000),
    (SCENES, 20, 3, 1500),
    (MORE_SCENES, 20, 3, 1000),
    (MORE_SCENES, 20, 5, 600),
    (SCENES, 40, 3, 400),
]
"""Setting, models, seeds and trials."""


@dataclass(frozen=True)
class Images:
    """What all models share, (N,) each: effects of difficulty, as skewed as images are, and reference lengths."""

    difficulty: Array
    reference: Array

    @classmethod
    def drawn(cls, generator: np.random.Generator, images: int) -> Images:
        return cls(
            0.6 * (1 - generator.standard_exponential(images)), generator.integers(8, 14, images).astype(np.float64)
        )


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
            before = generator.binomial(np.minimum(before, guessed[:, order]).astype(np.int64), chances).astype(
                np.float64
            )
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


def halves(found: MeanDifference, level: float = 0.95) -> Array:
    return np.asarray(stdtrit(found.degrees, (1 + level) / 2) * found.error)


def two_models(
    seeds: tuple[int, int], deviations: tuple[float, float], images: int = IMAGES, trials: int = TRIALS
) -> tuple[Array, Array]:
    """Differences, all of which are 0 in truth, and half the widths of their intervals."""
    found = [difference_of_means(*pair) for pair in summaries(seeds, deviations, trials, images)]
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
                        [
                            pseudo_values(seed.values, BLEU.score)[:, 3]
                            for seed in counts(generator, images, seeds, deviation, shortfall)
                        ]
                    )
                    for _ in range(2)
                ]
                found = difference_of_means(*map(summary, models))
                half = float(halves(found))
                covered.append(abs(float(found.difference)) <= half)
                width.append(200 * half)
                means.append(100 * models[0].mean(axis=1).std(ddof=1))
            spread = np.sqrt(np.mean(np.square(means)))
            print(f"\nBLEU-4, shortfall {shortfall}, {seeds} seeds that deviate by {spread:.1f} points: ", end="")
            print(f"covered {np.mean(covered):.1%}, median width {np.median(width):.1f}", end="")
            assert 0.935 <= np.mean(covered) <= 0.98


@dataclass(frozen=True)
class Placed:
    """Significant differences in many simulated tables, compared with the true ones.

    `covered` is the mean coverage of 95 % intervals of single pairs, `worst` that of the pair with the least; `wrong`
    the share of tables with a significant difference that does not exist or has the other sign; `told` the share of
    true differences that are significant; `half` the median half width of intervals that hold for all pairs at once.
    """

    covered: float
    worst: float
    wrong: float
    told: float
    half: float


def placed(
    setting: Setting, deviations: Sequence[float], seeds: int, trials: int, step: float = 0.0
) -> tuple[Placed, Placed]:
    """Tables of models whose expected scores are `step` apart: by models' own variances, and by borrowed ones."""
    generator, models = np.random.default_rng(2024), len(deviations)
    pairs = list(combinations(range(models), 2))
    at_once = max(1, min(trials, NUMBERS_AT_ONCE // (models * seeds * setting.images)))
    drawn = []
    for _ in range(trials // at_once):
        scores = simulated(
            generator, at_once, [seeds] * models, deviations, setting.images, setting.to_image, setting.interaction
        )
        own = [summary(each - step * number) for number, each in enumerate(scores)]
        between, interaction = (
            np.stack([getattr(each, name) for each in own], axis=-1) for name in ("between", "interaction")
        )
        shrunk = table_variances(between, interaction, seeds)
        borrowed = [
            each._replace(between=shrunk.between[:, number], degrees=shrunk.degrees[:, number])
            for number, each in enumerate(own)
        ]
        drawn.append(
            [
                np.stack([difference_of_means(table[one], table[two]) for one, two in pairs], axis=-1)
                for table in (own, borrowed)
            ]
        )
    true = step * np.array([two - one for one, two in pairs])
    by_own, by_borrowed = (
        _told(MeanDifference(*np.concatenate(found, axis=1)), true) for found in zip(*drawn, strict=True)
    )
    return by_own, by_borrowed


def _told(found: MeanDifference, true: Array) -> Placed:
    """Of differences (trials, pairs), by Holm's correction for all pairs of a trial."""
    inside = (np.abs(found.difference - true) <= halves(found)).mean(axis=0)
    told = np.array([holm(p) for p in p_of_t(*found).tolist()]) < ALPHA
    right = np.sign(found.difference) == np.sign(true)
    return Placed(
        float(inside.mean()),
        float(inside.min()),
        float((told & ~right).any(axis=1).mean()),
        float((told & right).mean()),
        float(np.median(halves(found, 1 - ALPHA / len(true)))),
    )


KINDS = ("none", "4.2 each", "half 3, half 9", "half 2, half 15", "one 15", "scattered")


def spread(kind: str, models: int) -> list[float]:
    """How much the seeds of a table's models deviate, in points."""
    scattered: Array = 4.2 * np.exp(0.5 * np.random.default_rng(3).standard_normal(models))
    return {
        "none": [0.0] * models,
        "4.2 each": [4.2] * models,
        "half 3, half 9": ([3.0, 9.0] * models)[:models],
        "half 2, half 15": ([2.0, 15.0] * models)[:models],
        "one 15": [4.2] * (models - 1) + [15.0],
        "scattered": list(scattered),
    }[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_equal_models_seldom_tell_any_apart(kind: str) -> None:
    for setting, models, seeds, trials in TABLES:
        own, shrunk = placed(setting, spread(kind, models), seeds, trials)
        print(f"\n{kind}, {models} models, {seeds} seeds, {setting.images} images of {setting.interaction}: ", end="")
        print(
            f"covered {own.covered:.1%} -> {shrunk.covered:.1%}, worst {own.worst:.1%} -> {shrunk.worst:.1%}, ", end=""
        )
        print(f"any told {own.wrong:.1%} -> {shrunk.wrong:.1%}, half width {own.half:.1f} -> {shrunk.half:.1f}", end="")
        assert shrunk.wrong <= (0.09 if models < 6 else 0.065)
        assert shrunk.covered >= 0.92
        assert shrunk.half <= own.half
        if models >= 10 and seeds == 3 and kind == "4.2 each":
            assert shrunk.wrong < 0.04
            assert shrunk.half < 0.6 * own.half


def told_of_equals(setting: Setting, deviations: Array, seeds: int, trials: int) -> tuple[float, float]:
    """How often a table of equal models has a significant difference, by own and by pooled variances.

    Means are drawn as normal numbers, variances as chi-squared ones, in place of images one by one.
    """
    generator, models, images = np.random.default_rng(2024), len(deviations), setting.images
    interaction = np.full((trials, models), setting.interaction**2 / (seeds * images))
    true = np.square(deviations) / seeds + interaction
    between = true * generator.chisquare(seeds - 1, true.shape) / (seeds - 1)
    to_image = setting.to_image**2 / images
    means = np.sqrt(true + to_image) * generator.standard_normal(true.shape)
    one, two = np.array(list(combinations(range(models), 2))).T
    gap, shrunk = means[:, one] - means[:, two], table_variances(between, interaction, seeds)
    # Critical values by the reciprocal of the degrees of freedom, in place of every p.
    grid = np.linspace(1e-4, 1, 4000)
    critical = stdtrit(1 / grid, 1 - ALPHA / 2 / len(one))
    found = []
    for variances, free in ((between, np.full_like(between, seeds - 1)), (shrunk.between, shrunk.degrees)):
        sides = (variances[:, one], variances[:, two]), (free[:, one], free[:, two])
        error, degrees = error_and_degrees(*sides, np.full_like(gap, 2 * to_image), images)
        found.append(float((np.abs(gap) > error * np.interp(1 / degrees, grid, critical)).any(axis=1).mean()))
    return found[0], found[1]


def test_how_often_tables_of_equal_models_tell_any_apart() -> None:
    """The largest of three settings, for the table of the page."""
    for seeds in (3, 4, 5):
        for models in (3, 4, 6, 10, 20, 40):
            row, trials = [], 20_000 if models < 10 else 4_000
            for kind in KINDS:
                deviations = np.array(spread(kind, models))
                settings = (SCENES, MORE_SCENES, PHOTOGRAPHS)
                own, shrunk = np.max([told_of_equals(each, deviations, seeds, trials) for each in settings], axis=0)
                row.append(f"{100 * own:.1f} → {100 * shrunk:.1f}")
                assert shrunk <= (0.09 if models < 10 else 0.065)
            print(f"\n| {models} | {seeds} | {' | '.join(row)} |", end="")


def test_two_seeds_would_lend_too_much() -> None:
    """Why a table of two seeds borrows nothing."""
    for models in (5, 20):
        _, shrunk = placed(PHOTOGRAPHS, spread("half 3, half 9", models), 2, 1000)
        print(
            f"\nhalf 3, half 9, {models} models, 2 seeds: covered {shrunk.covered:.1%}, any told {shrunk.wrong:.1%}",
            end="",
        )
        assert shrunk.wrong > 0.07


def test_tables_tell_more_pairs_by_what_their_models_lend() -> None:
    for setting in (SCENES, MORE_SCENES):
        for seeds in (3, 5):
            own, shrunk = placed(setting, spread("4.2 each", 20), seeds, 200, step=2.0)
            print(f"\n20 models 2 points apart, {seeds} seeds, {setting.images} images: ", end="")
            print(f"told {own.told:.0%} -> {shrunk.told:.0%}, any wrong {own.wrong:.1%} -> {shrunk.wrong:.1%}", end="")
            assert shrunk.wrong <= 0.05
            assert shrunk.told > (1.5 if seeds == 3 else 1.1) * own.told


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
