"""Rules by which pictures are split."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

from harness.data.convert.source import Picture
from harness.utils.errors import BenchError
from harness.utils.files import shortened

SOURCE = "source"
DEFAULT = "hash:80/10/10"
SPLITS = ("train", "val", "test")


def split_pictures(pictures: Sequence[Picture], rule: str | None) -> str:
    """Give every picture a split; returns the rule.

    Args:
        rule: "source" for those of the source, "hash:TRAIN/VAL/TEST" for these per cent by a hash of the file name: a
            picture stays in its split whatever is added or left out. None: the source's if it has any, else
            `DEFAULT`.

    Raises:
        BenchError: the rule cannot be understood, the source's splits are incomplete, or a split stays empty.
    """
    told = [picture for picture in pictures if picture.split is not None]
    rule = rule or (SOURCE if told else DEFAULT)
    hint = f"write --split-by {SOURCE}, or per cent of train, val and test: --split-by {DEFAULT}"
    if rule == SOURCE:
        if len(told) < len(pictures):
            without = next(picture.file for picture in pictures if picture.split is None)
            raise BenchError(
                f"--split-by {SOURCE}: {len(pictures) - len(told)} of {len(pictures)} pictures have no split there, "
                f"{without} for one",
                f"split all of them by their names: --split-by {DEFAULT}",
            )
        return rule
    kind, _, text = rule.partition(":")
    bounds = _bounds(text) if kind == "hash" else None
    if bounds is None:
        raise BenchError(f"--split-by {shortened(rule)!r} is no rule for splits", hint)
    for picture in pictures:
        place = int.from_bytes(hashlib.sha256(picture.file.encode("utf-8", "surrogatepass")).digest()[:8]) / 2**64 * 100
        picture.split = next(split for split, end in zip(SPLITS, (*bounds, math.inf), strict=True) if place < end)
    wanted = zip(SPLITS, (bounds[0], bounds[1] - bounds[0], 100 - bounds[1]), strict=True)
    if empty := [split for split, share in wanted if share and not any(each.split == split for each in pictures)]:
        raise BenchError(
            f"--split-by {rule} leaves no picture of {len(pictures)} for {', '.join(empty)}",
            "give it a larger share, as in --split-by hash:60/20/20",
        )
    return rule


def _bounds(text: str) -> tuple[float, float] | None:
    """Where train and val end, in per cent; None where the text is not three shares of 100 with some for train."""
    try:
        shares = [float(part) for part in text.split("/")]
    except ValueError:
        return None
    if len(shares) != 3 or not all(0 <= share <= 100 for share in shares) or not math.isclose(sum(shares), 100):
        return None
    return (shares[0], shares[0] + shares[1]) if shares[0] else None
