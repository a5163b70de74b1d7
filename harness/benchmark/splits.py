"""The splits of a run: usable images alone, and `restval` as its recipe has it."""

from __future__ import annotations

from collections.abc import Collection

from harness.data.dataset import Dataset, Sample
from harness.data.prepare_features import TRAINING_SPLITS
from harness.utils.errors import BenchError


def usable_splits(dataset: Dataset, skipped: Collection[int]) -> dict[str, tuple[Sample, ...]]:
    """Usable images by split; BenchError where one that is needed has none."""
    splits = {
        name: tuple(sample for sample in samples if sample.image_id not in skipped)
        for name, samples in dataset.splits.items()
    }
    for name in (*TRAINING_SPLITS, "test"):
        if not splits.get(name):
            raise BenchError(
                f"{dataset.name} has no usable image in its {name!r} split",
                "mark images with split train, val and test",
            )
    return splits


def without_restval(dataset: Dataset, train: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """The training images but those of Karpathy's `restval`; BenchError where no other is left."""
    kept = tuple(sample for sample in train if not sample.restval)
    if not kept:
        raise BenchError(
            f"recipe.restval is dropped, and all training images of {dataset.name} are of its split 'restval'",
            "add --set recipe.restval=train",
        )
    return kept
