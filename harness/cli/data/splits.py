"""How many images each split has, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def describe_splits(splits: Iterable[str]) -> str:
    """The splits of some images, as `train 80, val 20`."""
    return ", ".join(f"{split} {count}" for split, count in Counter(splits).items())
