"""Scores of models whose true means, and whose variances over seeds and images, are known."""

from collections.abc import Sequence

import numpy as np

from results.statistics.significance import Array

IMAGES = 300
IMAGE_DEVIATION = 60.0
MODEL_IMAGE_DEVIATION = 28.0
INTERACTION_DEVIATION = 30.0


def simulated(
    generator: np.random.Generator,
    trials: int,
    seeds: Sequence[int],
    deviations: Sequence[float],
    images: int = IMAGES,
    to_image: float = MODEL_IMAGE_DEVIATION,
    interaction: float = INTERACTION_DEVIATION,
) -> list[Array]:
    """One array (trials, S, N) a model, in points: all models have the same expected score, 0.

    Added up: the image's difficulty, shared by all models; how the model takes to the image (`to_image`); the seed's
    effect, whose standard deviation is the model's of `deviations`; the `interaction` of seed and image. All that is
    drawn by image is exponential, as skewed as scores of captions are.
    """

    def skewed(*shape: int) -> Array:
        return generator.standard_exponential(shape) - 1

    shared = IMAGE_DEVIATION * skewed(trials, 1, images)
    return [
        shared
        + to_image * skewed(trials, 1, images)
        + deviation * generator.standard_normal((trials, count, 1))
        + interaction * skewed(trials, count, images)
        for count, deviation in zip(seeds, deviations, strict=True)
    ]
