"""N-gram counts of captions by models whose true BLEU is the same, with effects of seeds and images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.metrics.bleu import BLEU
from harness.metrics.contract import Array, Statistics

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
