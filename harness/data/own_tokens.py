"""Captions as the data set's own tokens: Karpathy's files have some beside each raw caption.

Luo's ImageCaptioning.pytorch and its descendants (AoANet, Image Transformer) tokenise nothing themselves, and count
words over all splits of the file, those that are evaluated too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from harness.data.dataset import Dataset, Sample
from harness.data.preparation import OWN_TOKENS
from harness.utils.errors import BenchError

_KARPATHYS = ("train", "val", "test")
"""Splits of Karpathy's files, `restval` within `train`; nocaps, which may be joined to them, has no tokens."""


def as_read(samples: Sequence[Sample], preparation: str) -> tuple[Sample, ...]:
    """Samples with the captions that a vocabulary of this preparation reads: raw ones, or tokens joined by spaces."""
    if preparation != OWN_TOKENS:
        return tuple(samples)
    return tuple(replace(sample, captions=sample.tokens or ()) for sample in samples)


def counted_captions(dataset: Dataset, train: Iterable[Sample], preparation: str) -> Iterator[str]:
    """The captions that a vocabulary is built from: those of `train`, or the tokens of all splits.

    Raises:
        BenchError: the preparation is of tokens, and a caption has none.
    """
    if preparation != OWN_TOKENS:
        return (caption for sample in train for caption in sample.captions)
    counted = [sample for split in _KARPATHYS for sample in dataset.splits.get(split, ())]
    without = [sample for sample in counted if sample.tokens is None]
    if without:
        raise BenchError(
            f"recipe.captions is {OWN_TOKENS}, but {len(without)} images of {dataset.name} have captions without "
            f'"tokens", as image {without[0].image_id}',
            "give Karpathy's own file (dataset_coco.json), or add --set recipe.captions=words",
        )
    return (caption for sample in counted for caption in sample.tokens or ())
