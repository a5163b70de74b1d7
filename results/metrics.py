"""Metrics beside the usual ones: what each measures, which direction is better, and how its stored names begin.

A stored name is that of the metric, and in parentheses the model or list that it depends on, as "CLIPScore
(clip:openai/clip-vit-large-patch14@0123456789ab)": scores of different models never share a name.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

Better = Literal["higher", "lower", "neither"]
BETTER: Final[dict[Better, str]] = {"higher": "more", "lower": "less", "neither": "neither"}


@dataclass(frozen=True, slots=True)
class MoreMetric:
    """One metric: `meaning` is a sentence; `share` of one that is a fraction, which tables show times 100."""

    meaning: str
    better: Better
    share: bool = True


MORE_METRICS: Final = {
    "caption_words": MoreMetric("mean number of words of a caption", "neither", False),
    "caption_words_sd": MoreMetric("standard deviation of the number of words over captions", "neither", False),
    "distinct-1": MoreMetric("different words over all words of the captions", "higher"),
    "distinct-2": MoreMetric("different pairs of words over all pairs", "higher"),
    "vocabulary_used": MoreMetric("different words in all captions together", "higher", False),
    "self-CIDEr": MoreMetric("how much several captions of one image differ, 0 if all are the same", "higher"),
    "CHAIR-i": MoreMetric("mentions of objects that are not in the image, of all mentions of objects", "lower"),
    "CHAIR-s": MoreMetric("captions that mention an object that is not in the image", "lower"),
    "CLIPScore": MoreMetric("similarity of image and caption to a CLIP model, without references", "higher"),
    "RefCLIPScore": MoreMetric("harmonic mean of CLIPScore and the similarity to the closest reference", "higher"),
    "BERTScore": MoreMetric("F1 of matched token embeddings of caption and closest reference", "higher"),
}
"""By the beginning of the stored name, in the order of display."""


def base_name(metric: str) -> str:
    return metric.partition(" (")[0]


def depends_on(metric: str) -> str:
    """What a stored metric depends on, "" where on nothing."""
    return metric.partition(" (")[2].removesuffix(")")


@cache
def is_more(metric: str) -> bool:
    return base_name(metric) in MORE_METRICS


def more_order(metrics: Iterable[str]) -> list[str]:
    names = list(MORE_METRICS)
    return sorted(set(metrics), key=lambda metric: (names.index(base_name(metric)), metric))
