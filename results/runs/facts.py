"""Facts of a scene by kind: the share of what captions state that is true, and of the picture's that they tell.

The store keeps, of every image and kind, four counts in one number: precision, recall and F of any images, and each
image's influence on them, follow from their sums.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from results.metrics import base_name
from results.statistics.significance import Array, pseudo_values, ratio

KINDS: Final = ("object", "colour", "size", "count", "relation", "background")
WORD_KINDS: Final = ("object", "colour", "count", "relation")
MEASURES: Final = ("precision", "recall", "F")
PARSED: Final = "facts-parsed"
WORDS: Final = "facts-words"
"""Of photographs, the share of captions with a word of any kind; its unit says by what they are judged."""
_BITS: Final = 4
MOST: Final = 2**_BITS - 1


def fact_metric(measure: str, kind: str) -> str:
    return f"facts-{measure} ({kind})"


FACT_METRICS: Final = tuple(fact_metric(measure, kind) for kind in KINDS for measure in MEASURES)


def fact_counts(kind: str) -> str:
    return f"facts ({kind})"


def is_fact(metric: str) -> bool:
    return base_name(metric).partition("-")[0] == "facts"


def packed(counts: Array) -> Array:
    """Counts (..., 4), facts stated, true ones of these, facts of the picture, told ones of these, as (...) numbers."""
    return np.minimum(counts, MOST) @ (1 << _BITS * np.arange(4)).astype(np.float64)


def unpacked(numbers: Array) -> Array:
    """The counts (..., 4) of what `packed` made."""
    integers: NDArray[np.int64] = np.asarray(numbers, np.int64)[..., None]
    return (integers >> _BITS * np.arange(4) & MOST).astype(np.float64)


def states_falsely(number: float) -> bool:
    """Whether some of the facts that are stated, by the counts of one image and kind as stored, are not true."""
    return int(number) & MOST > int(number) >> _BITS & MOST


def fact_scores(totals: Array) -> Array:
    """Precision, recall and F, (..., 3), of summed counts (..., 4); 0 where nothing is stated, or nothing is there."""
    stated, true, present, recalled = np.moveaxis(totals, -1, 0)
    precision = ratio(true, stated)
    recall = ratio(recalled, present)
    return np.stack([precision, recall, ratio(2 * precision * recall, precision + recall)], axis=-1)


def undefined(totals: Array, kind: str) -> dict[str, str]:
    """By measure, why summed counts (4,) have none of it."""
    stated, _, present, _ = totals.tolist()
    absent = {} if present else dict.fromkeys(MEASURES[1:], f"no picture has facts of this kind: {kind}")
    return absent if stated else {MEASURES[0]: f"no caption states facts of this kind: {kind}", **absent}


def fact_influences(counts: Array, metric: str) -> Array:
    """Each image's influence on a measure of a kind of facts, from the stored counts of two images or more."""
    measure = base_name(metric).removeprefix("facts-")
    influences: Array = pseudo_values(unpacked(counts), fact_scores)[:, MEASURES.index(measure)]
    return influences
