"""Column types that hold on every database: UTC times, packed per-image scores and packed attention weights."""

from __future__ import annotations

import math
import struct
import sys
from array import array
from datetime import UTC, datetime
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import DateTime, Dialect, LargeBinary
from sqlalchemy.types import TypeDecorator

_SIZE: Final = struct.Struct("<II")


class UtcDateTime(TypeDecorator[datetime]):
    """An aware UTC time. SQLite keeps no zone, so it is taken off on the way in and put back on the way out."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """To naive UTC."""
        return None if value is None else value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """To aware UTC."""
        return None if value is None else value.replace(tzinfo=UTC)


class PackedScores(TypeDecorator[dict[int, float]]):
    """Scores by image id as one blob: n ids (int64) ascending, then n scores (float64), little-endian.

    Twenty models of three seeds on 5,000 images with seven metrics are 2.1 million numbers. In SQLite they take 75 MB
    as rows of their own and 64 MB as JSON; packed they take 34 MB, keep every bit, and one metric of one run, which is
    what significance tests and galleries read, is one row.
    """

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: dict[int, float] | None, dialect: Dialect) -> bytes | None:  # noqa: ARG002
        """To bytes; an id outside int64 raises OverflowError."""
        if value is None:
            return None
        ids = array("q", sorted(value))
        scores = array("d", (value[image_id] for image_id in ids))
        if sys.byteorder == "big":
            ids.byteswap()
            scores.byteswap()
        return ids.tobytes() + scores.tobytes()

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> dict[int, float] | None:  # noqa: ARG002
        """To a dictionary ascending by image id; ValueError where the blob is damaged."""
        if value is None:
            return None
        ids, scores = unpack_scores(value)
        return dict(zip(ids.tolist(), scores.tolist(), strict=True))


class PackedWeights(TypeDecorator[list[list[float]]]):
    """A matrix in half precision as one blob: rows and columns (uint32), then the numbers by rows, little-endian.

    Half precision keeps three digits of an attention weight, more than any picture shows, in a quarter of the space.
    """

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: list[list[float]] | None, dialect: Dialect) -> bytes | None:  # noqa: ARG002
        """To bytes; rows of different lengths raise struct.error, numbers beyond 65,504 OverflowError."""
        if value is None:
            return None
        rows, columns = len(value), len(value[0])
        return struct.pack(f"<II{rows * columns}e", rows, columns, *(number for row in value for number in row))

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> list[list[float]] | None:  # noqa: ARG002
        """To rows of numbers; ValueError where the blob is damaged."""
        if value is None:
            return None
        return unpack_weights(value)


def unpack_scores(value: bytes) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Ids and scores of a `PackedScores` blob; ValueError where it is none."""
    if len(value) % 16:
        raise ValueError(f"{len(value)} bytes are no ids and scores")
    half = len(value) // 2
    ids, scores = np.frombuffer(value[:half], "<i8"), np.frombuffer(value[half:], "<f8")
    if (ids[1:] <= ids[:-1]).any():
        raise ValueError("the ids do not ascend")
    if not np.isfinite(scores).all():
        raise ValueError("a score is not finite")
    return ids, scores


def unpack_weights(value: bytes) -> list[list[float]]:
    """Rows of numbers of a `PackedWeights` blob; ValueError where it is none."""
    if len(value) < _SIZE.size:
        raise ValueError(f"{len(value)} bytes are no matrix")
    rows, columns = _SIZE.unpack_from(value)
    if len(value) != _SIZE.size + 2 * rows * columns:
        raise ValueError(f"{len(value)} bytes are no matrix of {rows} x {columns}")
    numbers = struct.unpack_from(f"<{rows * columns}e", value, _SIZE.size)
    if not all(map(math.isfinite, numbers)):
        raise ValueError("a weight is not finite")
    return [list(numbers[start : start + columns]) for start in range(0, rows * columns, columns)]
