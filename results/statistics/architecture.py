"""Which architecture is better: differences over training seeds and images, and ranks (`docs/statistics.md`).

The paired tests of `results.statistics.significance` ask about trained weights; these about what training makes. A
model's scores are an array (S, N) of S seeds and N images. Seeds are a random effect, unpaired between models, images
are paired. Nothing here needs scores to be normal but the seed means, of which there are few.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import ceil, inf, isinf
from typing import Final, NamedTuple

import numpy as np

from results.statistics.estimate import ALPHA, Estimate
from results.statistics.significance import LEVEL, Array, holm, ratio, sign_flip_pairs

NEEDS_SEEDS: Final = "needs seeds: one is no measure of how much training varies"
NEEDS_IMAGES: Final = "needs images: one is no measure of how much images vary"
OVER_IMAGES: Final = "these weights, over images"
OVER_SEEDS: Final = "over seeds and images"
AS_GIVEN: Final = "these captions, over images"
NO_JOINT_INTERVAL: Final = "the images are too few for an interval of all pairs at once"


class ScoreSummary(NamedTuple):
    """What a model's scores (..., S, N) say about it.

    `images` (..., N) are the means over seeds; `between` (...) is the variance of the mean over seeds, s²/S, with
    `degrees` (...) of freedom, S - 1 unless a table adds some; `interaction` (...) that of an image's mean over seeds,
    less the seed's own and the image's own effect, by N.
    """

    images: Array
    between: Array
    interaction: Array
    degrees: Array


class MeanDifference(NamedTuple):
    """Differences first less second, their standard errors, and the degrees of freedom of t; all (...)."""

    difference: Array
    error: Array
    degrees: Array


@dataclass(frozen=True, slots=True)
class TTest:
    """Mean score of the first model less the second's, over seeds and images, in the scores' unit.

    The interval and p of the `estimate` are from t, by the standard `error` and its `degrees` of freedom. They are None
    where a side has too few seeds or images, which the reason says.
    """

    estimate: Estimate
    error: float | None
    degrees: float | None
    seeds: tuple[int, int]


def architecture_mean(scores: Array) -> Estimate:
    """A model's expected score from its scores (S, N); without an interval where seeds or images are too few."""
    mean = float(scores.mean())
    images = scores.shape[1]
    if (reason := missing(scores)) is not None:
        return Estimate(mean, n=images, reason=reason)
    model = summary(scores)
    images_variance = np.maximum(model.images.var(ddof=1) / images - model.interaction, 0.0)
    error, degrees = error_and_degrees(
        (model.between, np.zeros(())), (model.degrees, model.degrees), images_variance, images
    )
    half = float(t_quantile(LEVEL, degrees) * error)
    return Estimate(mean, mean - half, mean + half, n=images)


def architecture_difference(first: Array, second: Array) -> TTest:
    """The difference of two models by their scores (S, N) of the same images in the same order."""
    if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1] or not first.size:
        raise ValueError(f"scores (seeds, images) of the same images are needed: {first.shape}, {second.shape}")
    seeds = (len(first), len(second))
    images = first.shape[1]
    reason = missing(first) or missing(second)
    if reason is not None:
        gap = float((first.mean(axis=0) - second.mean(axis=0)).mean())
        return TTest(Estimate(gap, n=images, reason=reason), None, None, seeds)
    test = difference_of_means(summary(first), summary(second))
    half, (gap, error, degrees) = float(t_quantile(LEVEL, test.degrees) * test.error), map(float, test)
    return TTest(Estimate(gap, gap - half, gap + half, float(p_of_t(*test)), images), error, degrees, seeds)


def joint_degrees(degrees: float, seeds: tuple[int, int], tests: int) -> float:
    """Degrees of freedom of one of several tests that are corrected together.

    Those that two seeds estimate are good enough for 5 %, not for a correction's small levels, which take the fewest
    that there can be (Mickey and Brown 1966).
    """
    return 1.0 if tests > 1 and min(seeds) == 2 else degrees


def missing(scores: Array) -> str | None:
    """Why a model with these scores (S, N) cannot be tested, if it cannot."""
    return NEEDS_SEEDS if len(scores) < 2 else NEEDS_IMAGES if scores.shape[1] < 2 else None


def summary(scores: Array) -> ScoreSummary:
    """Means and variances of scores (..., S, N); at least two seeds and two images."""
    seeds, images = scores.shape[-2:]
    by_image = scores.mean(axis=-2)
    by_seed = scores.mean(axis=-1)
    centred = by_seed - by_seed.mean(axis=-1, keepdims=True)
    residuals = scores - by_image[..., None, :] - centred[..., None]
    interaction = np.square(residuals).sum(axis=(-2, -1)) / ((seeds - 1) * (images - 1) * seeds * images)
    between = np.square(centred).sum(axis=-1) / ((seeds - 1) * seeds)
    return ScoreSummary(by_image, between, interaction, np.full(between.shape, seeds - 1.0))


def of_any_seeds(scores: Array) -> ScoreSummary:
    """What scores (S, N) say; one seed is taken as it is, so that images alone vary."""
    if len(scores) > 1:
        return summary(scores)
    return ScoreSummary(scores[0], np.zeros(()), np.zeros(()), np.ones(()))


def difference_of_means(first: ScoreSummary, second: ScoreSummary) -> MeanDifference:
    """First less second, of models whose seeds are unpaired and whose images are the same.

    The variance is the seeds', s²_A / S_A + s²_B / S_B, and the images', that of the seed-averaged differences by N.
    Both hold the interaction of seeds and images, which is taken out of the images' once. The reciprocal of the degrees
    of freedom is the mean of the parts' reciprocals, weighted by their shares of the variance. Satterthwaite's (1946)
    weighs by squared shares: where two seeds estimate a share, these are too good, and 6 % are false positives.
    """
    gap = first.images - second.images
    between = (first.between, second.between)
    degrees = (first.degrees, second.degrees)
    parts = error_and_degrees(between, degrees, images_part(first, second), gap.shape[-1])
    return MeanDifference(gap.mean(axis=-1), *parts)


def images_part(first: ScoreSummary, second: ScoreSummary) -> Array:
    """What the images add to a difference's variance, without the interaction, which is in the seeds' part."""
    gap = first.images - second.images
    variance: Array = gap.var(axis=-1, ddof=1) / gap.shape[-1] - first.interaction - second.interaction
    return np.maximum(variance, 0.0)


def error_and_degrees(
    between: tuple[Array, Array], free: tuple[Array, Array], images_variance: Array, images: int
) -> tuple[Array, Array]:
    """Standard errors and degrees of freedom of differences of two models' means.

    Args:
        between: the variances of both models' means over their seeds.
        free: the degrees of freedom of each of these.
        images_variance: the part of the variance that is due to the images.
        images: their number.
    """
    seeds_variance = between[0] + between[1]
    variance = seeds_variance + images_variance
    squares = np.square(between[0]) / free[0] + np.square(between[1]) / free[1]
    # squares / seeds_variance is Welch's formula, in a form that models without any spread do not divide by zero.
    reciprocal = ratio(ratio(squares, seeds_variance), variance) + ratio(images_variance, variance) / (images - 1)
    degrees = np.where(variance > 0, ratio(np.ones_like(reciprocal), reciprocal), images - 1)
    return np.sqrt(variance), degrees


def t_quantile(level: float, degrees: Array) -> Array:
    """Within plus and minus this, t has the probability `level`; by element."""
    from scipy.special import stdtrit

    quantile: Array = stdtrit(degrees, (1 + level) / 2)
    return quantile


def p_of_t(difference: Array, error: Array, degrees: Array) -> Array:
    """Two-sided, by element; without any variation a difference is certain, and none is none."""
    from scipy.special import stdtr

    certain = error == 0
    t = np.abs(difference) / np.where(certain, 1.0, error)
    p: Array = np.where(certain, difference == 0, 2 * stdtr(degrees, -t))
    return p


MOST_PRIOR_DF: Final = 30.0  # more would say that all models deviate exactly alike
_SHRINKING_SEEDS = _SHRINKING_MODELS = 3


class TableVariances(NamedTuple):
    """What the seeds of a table's models say together: variances of means (..., M), and their degrees of freedom.

    `prior_df` (...) is the degrees of freedom that the table adds to each model's own; `bartlett_p` (...) tests the
    hypothesis that all models deviate alike.
    """

    between: Array
    degrees: Array
    prior_df: Array
    bartlett_p: Array


def table_variances(between: Array, interaction: Array, seeds: int) -> TableVariances:
    """Variances of models' means over seeds; shrinkage never lowers one (`docs/statistics.md`).

    A model has the largest of three: its own variance, its own shrunk towards the table's (empirical Bayes, Smyth
    2004), and the interaction's e² / (S N), below which no variance of seed means can lie. Degrees of freedom go with
    it: d = S - 1 of its own and `prior_df`, but no more than all models have together. Where Bartlett's test (1937)
    rejects that all deviate alike, `prior_df` is the table's times p over the level.

    `between` and `interaction` are of `ScoreSummary`, (..., M), of three models and `seeds` or more.
    """
    from scipy.special import chdtrc, digamma, polygamma

    models = between.shape[-1]
    own_df = seeds - 1.0
    # A variance of 0 has no logarithm; limma's eBayes raises it likewise.
    raised = np.maximum(between, np.maximum(1e-5 * np.median(between, axis=-1, keepdims=True), np.finfo(float).tiny))
    logs = np.log(raised)
    pooled = np.log(raised.mean(axis=-1)) - logs.mean(axis=-1)
    bartlett_p = chdtrc(models - 1, own_df * models * pooled / (1 + (models + 1) / (3 * models * own_df)))

    excess = logs.var(axis=-1, ddof=1) - polygamma(1, own_df / 2)
    table_df = np.minimum(2 * _inverse_trigamma(np.maximum(excess, polygamma(1, MOST_PRIOR_DF))), MOST_PRIOR_DF)
    centre = logs.mean(axis=-1) - digamma(own_df / 2) + np.log(own_df / 2)
    common = np.exp(centre + digamma(table_df / 2) - np.log(table_df / 2))
    shrunk = ((table_df * common)[..., None] + own_df * between) / (table_df + own_df)[..., None]
    prior_df = table_df * np.minimum(bartlett_p / ALPHA, 1.0)
    degrees = np.minimum(own_df + prior_df, own_df * models)
    return TableVariances(
        np.maximum(np.maximum(between, interaction), shrunk),
        np.broadcast_to(degrees[..., None], between.shape).copy(),
        prior_df,
        bartlett_p,
    )


def _inverse_trigamma(values: Array) -> Array:
    """By Newton's method from below, as Smyth (2004) has it; positive values."""
    from scipy.special import polygamma

    inverse = 0.5 + 1 / values
    for _ in range(20):
        reached = polygamma(1, inverse)
        inverse = inverse + reached * (1 - reached / values) / polygamma(2, inverse)
    return np.asarray(inverse)


@dataclass(frozen=True, slots=True)
class ModelPair:
    """Two models of a table by their numbers, and the difference first less second.

    The interval of the `estimate` holds for all pairs of the table at once, its p is Holm's for all of them: from t
    with `degrees` of freedom, whose `quantile` is that of the interval; of captions as they are both are of sign flips,
    and there is no interval where images are too few for one. `error` is the standard error, of whose square the
    images' part is `images_share`, and what falls with more images `falls_with_images`.
    """

    first: int
    second: int
    estimate: Estimate
    error: float
    degrees: float
    images_share: float
    falls_with_images: float
    quantile: float

    @property
    def difference(self) -> float:
        assert self.estimate.value is not None
        return self.estimate.value

    @property
    def better(self) -> bool | None:
        """Whether the first is significantly better than the second, or worse; None where it is neither."""
        return self.difference > 0 if self.estimate.is_significant else None

    def same_within(self, margin: float) -> bool:
        """Whether the difference is surely smaller than the margin: two one-sided tests, for all pairs at once."""
        low = self.estimate.low
        high = self.estimate.high
        return low is not None and high is not None and -margin < low and high < margin

    def needed(self, seeds: int, images: int, margin: float) -> tuple[int | None, int | None]:
        """How many seeds, or else how many images, would make the difference significant, or show it within the margin.

        Expected numbers, above those that have not; the difference and all variances as observed. None: no number does.
        """
        gap = abs(self.difference)
        quantile = self.quantile + _POWER_QUANTILE
        target = max(gap / quantile, (margin - gap) / quantile, 0.0) ** 2
        images_part = self.images_share * self.error**2
        falling = self.falls_with_images * self.error**2
        seeds_times = _times(self.error**2 - images_part, target - images_part)
        images_times = _times(falling, target - self.error**2 + falling)
        return _more_than(seeds, seeds * seeds_times), _more_than(images, images * images_times)


_POWER_QUANTILE: Final = 0.8416  # of four in five
_FAR: Final = 1e7


def _times(part: float, allowed: float) -> float:
    return part / allowed if allowed > 0 else inf


def _more_than(count: int, needed: float) -> int | None:
    return None if needed > _FAR else max(count + 1, ceil(needed))


class Ranking(NamedTuple):
    """All pairs of a table's models, each model's best and worst rank (1 is the best), and their shrunk variances.

    `variances` is None where they are not shrunk: of two models, or of two seeds.
    """

    pairs: list[ModelPair]
    ranks: list[tuple[int, int]]
    variances: TableVariances | None


def rank_models(models: Sequence[Array]) -> Ranking:
    """All pairs of models by their scores (S, N) of the same images and as many seeds, and each model's ranks.

    Pairs are tested with Holm's correction. Ranks run from 1 plus the number of significantly better models to the
    number of models minus the significantly worse ones (Klein, Wright and Wieczorek 2020). The intervals of all pairs
    hold at once (Bonferroni). With one row of scores each, ranks are over images, by sign flips.
    """
    for scores in models:
        if scores.ndim != 2 or len(scores) < 1 or scores.shape[1] < 2 or scores.shape != models[0].shape:
            shapes = ", ".join(str(model.shape) for model in models)
            raise ValueError(f"scores (seeds, images) of as many seeds and the same images are needed: {shapes}")
    summaries = [of_any_seeds(scores) for scores in models]
    variances = None
    if len(models) >= _SHRINKING_MODELS and len(models[0]) >= _SHRINKING_SEEDS:
        between = np.array([model.between for model in summaries])
        interaction = np.array([model.interaction for model in summaries])
        variances = table_variances(between, interaction, len(models[0]))
        summaries = [
            model._replace(between=variance, degrees=degrees)
            for model, variance, degrees in zip(summaries, variances.between, variances.degrees, strict=True)
        ]
    pairs = _pairs(summaries, len(models[0]) if models else 0)
    better = [0] * len(models)
    worse = [0] * len(models)
    for pair in pairs:
        if pair.better is not None:
            winner, loser = (pair.first, pair.second) if pair.better else (pair.second, pair.first)
            better[loser] += 1
            worse[winner] += 1
    ranks = [(1 + better[model], len(models) - worse[model]) for model in range(len(models))]
    return Ranking(pairs, ranks, variances)


def _pairs(models: Sequence[ScoreSummary], seeds: int) -> list[ModelPair]:
    pairs = list(combinations(range(len(models)), 2))
    if not pairs:
        return []
    images = models[0].images.shape[-1]
    later = (ScoreSummary(*map(np.array, zip(*models[one:], strict=True))) for one in range(1, len(models)))
    tests = [difference_of_means(model, later_models) for model, later_models in zip(models, later, strict=False)]
    gaps, errors, degrees = (np.concatenate(parts) for parts in zip(*tests, strict=True))
    degrees = np.array([joint_degrees(free, (seeds, seeds), len(pairs)) for free in degrees.tolist()])
    alpha = ALPHA / len(pairs)
    quantiles = t_quantile(1 - alpha, degrees)
    lows = gaps - quantiles * errors
    highs = gaps + quantiles * errors
    p_values = p_of_t(gaps, errors, degrees)
    if seeds == 1:
        p_values, lows, highs = sign_flip_pairs(np.array([model.images for model in models]).T, pairs, alpha)
    numbers = np.array((gaps, errors, degrees, lows, highs, np.array(holm(p_values.tolist())), quantiles))
    compared = []
    for pair, (gap, error, free, low, high, p, quantile) in zip(pairs, numbers.T.tolist(), strict=True):
        if isinf(low):
            estimate = Estimate(gap, p=p, n=images, reason=NO_JOINT_INTERVAL)
        else:
            estimate = Estimate(gap, low, high, p, images)
        one, two = (models[index] for index in pair)
        images_variance = float(images_part(one, two))
        variance = error**2
        falling = images_variance + float(min(one.interaction, one.between) + min(two.interaction, two.between))
        share, falls = (part / variance if variance else 0.0 for part in (images_variance, falling))
        compared.append(ModelPair(*pair, estimate, error, free, share, falls, quantile))
    return compared
