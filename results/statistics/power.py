"""Which difference of two architectures a test detects, its power (`docs/statistics.md`).

Both models have S seeds and the same N images. s is the standard deviation of a model's seed means over these images,
d that over images of the two models' paired difference, without the interaction with seeds. The difference D of two
means has the variance V = 2 s²/S + d²/N. Part of s² is the interaction of seed and image, e²/N, which falls with the
images as d²/N does; the rest is the seed's own effect, which no image lowers (`seed_deviation_over`). The test of
`results.statistics.architecture` rejects where |D| > h, half its interval, which depends on the two estimates of s²;
these are s² χ²/(S - 1) with S - 1 degrees of freedom, and independent of D. So

    power(δ) = mean over both χ² of  Φ((δ - h) / √V) + Φ((-δ - h) / √V)

as Lee and Gurland ("Size and Power of Tests for Equality of Means of Two Normal Populations with Unequal Variances",
Journal of the American Statistical Association 1975) average over variances for Welch's test. Degrees of freedom of the
true variances instead promise 34 points where two seeds detect 56. The images' part is taken as known: N is at least
some dozens. All deviations and differences are in one unit, such as points.

Of several tests that Holm corrects together, the one with the lowest p is judged at the level 0.05 / tests. A single
difference among them must reach that, and h is half the interval of that level.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import Final

import numpy as np

from results.statistics.architecture import error_and_degrees, images_part, joint_degrees, summary
from results.statistics.significance import LEVEL, Array

POWER: Final = 0.8
MAX_SEEDS: Final = 1000
_MAX_IMAGES: Final = 2**40
_NODES: Final = 100


def detectable(seeds: int, images: int, seed_deviation: float, image_deviation: float, tests: int = 1) -> float:
    """The smallest difference that is found with a probability of `POWER`, by `seeds` of each model.

    `tests` are corrected together, and the other ones find nothing.
    """
    if seeds < 2:
        raise ValueError(f"two seeds or more are needed, not {seeds}")
    from scipy.special import gammaincinv

    middles = (np.arange(_NODES) + 0.5) / _NODES
    between = seed_deviation**2 / seeds * gammaincinv((seeds - 1) / 2, middles) * 2 / (seeds - 1)
    pairs = np.meshgrid(between, between)
    variance = 2 * seed_deviation**2 / seeds
    images_variance = _images_left(images, image_deviation)
    drawn = (pairs[0].ravel(), pairs[1].ravel())
    free = (np.array(seeds - 1.0), np.array(seeds - 1.0))
    error, degrees = error_and_degrees(drawn, free, np.full_like(drawn[0], images_variance), images)
    joint = np.array([joint_degrees(freedom, (seeds, seeds), tests) for freedom in degrees.tolist()])
    return _found(error, joint, variance + images_variance, tests)


def detectable_at_best(images: int, image_deviation: float, tests: int = 1) -> float:
    """What `detectable` falls towards as seeds are added: the images' part remains, that of a paired test over them."""
    images_variance = _images_left(images, image_deviation)
    return _found(np.sqrt([images_variance]), np.array([images - 1.0]), images_variance, tests)


def detectable_from(first: Array, second: Array, tests: int = 1) -> float:
    """The smallest difference that a test of such scores, (S, N) each, detects: S seeds of both vary as these do.

    s² is the mean of both sides' estimates, and the variance V the square of the test's standard error.
    """
    if first.shape != second.shape or min(first.shape) < 2:
        raise ValueError(f"scores of as many seeds and images, two or more: {first.shape}, {second.shape}")
    seeds, images = first.shape
    first_summary = summary(first)
    second_summary = summary(second)
    seed_deviation = float(np.sqrt(seeds * (first_summary.between + second_summary.between) / 2))
    return detectable(
        seeds, images, seed_deviation, float(np.sqrt(images * images_part(first_summary, second_summary))), tests
    )


def seed_deviation_over(images: int, seed_deviation: float, interaction: float, known_images: int) -> float:
    """The deviation of a model's seed means over `images`, from that over the `known` number of images.

    `interaction` is e, the deviation of seed and image together. Its part e²/N is at most the whole variance.
    """
    part = min(interaction**2 / known_images, seed_deviation**2)
    return float(np.sqrt(seed_deviation**2 - part + part * known_images / images))


def least_seeds(difference: float, images: int, seed_deviation: float, image_deviation: float) -> int | None:
    """The fewest seeds of each model that detect it; None where `MAX_SEEDS` do not."""
    return _least(2, MAX_SEEDS, lambda seeds: detectable(seeds, images, seed_deviation, image_deviation) <= difference)


def least_images(difference: float, image_deviation: float) -> int | None:
    """The fewest images that detect it with some number of seeds; None where `_MAX_IMAGES` do not."""
    return _least(2, _MAX_IMAGES, lambda images: detectable_at_best(images, image_deviation) <= difference)


def deviation_bounds(deviation: float, degrees: int) -> tuple[float, float]:
    """The 95 % interval of a normal standard deviation that was estimated with these degrees of freedom."""
    from scipy.special import chdtri

    tail = (1 - LEVEL) / 2
    low, high = (deviation * float(np.sqrt(degrees / chdtri(degrees, upper))) for upper in (tail, 1 - tail))
    return low, high


def _images_left(images: int, image_deviation: float) -> float:
    if images < 2:
        raise ValueError(f"two images or more are needed, not {images}")
    return image_deviation**2 / images


def _found(error: Array, degrees: Array, variance: float, tests: int) -> float:
    """The difference of power `POWER`, by equally likely standard errors and degrees of freedom of its test."""
    from scipy.optimize import brentq
    from scipy.special import ndtr, stdtrit

    spread = float(np.sqrt(variance))
    if spread == 0:
        return 0.0
    half = stdtrit(degrees, 1 - (1 - LEVEL) / (2 * tests)) * error / spread

    def missing(gap: float) -> float:
        return float(np.mean(ndtr(gap - half) + ndtr(-gap - half))) - POWER

    return float(brentq(missing, 0.0, float(half.max()) + 2.0)) * spread


def _least(least: int, most: int, enough: Callable[[int], bool]) -> int | None:
    """The least number from `few` on that is enough; None where `most` is not."""
    return bisect_left(range(most), True, least, key=enough) if enough(most) else None
