"""Column types that hold on every database: UTC times, packed per-image scores and packed attention weights."""

from __future__ import annotations

import struct
import sys
from array import array
from datetime import UTC, datetime

from sqlalchemy import DateTime, Dialect, LargeBinary
from sqlalchemy.types import TypeDecorator


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
        """To a dictionary ascending by image id."""
        if value is None:
            return None
        half = len(value) // 2
        ids, scores = array("q", value[:half]), array("d", value[half:])
        if sys.byteorder == "big":
            ids.byteswap()
            scores.byteswap()
        return dict(zip(ids, scores, strict=True))


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
        """To rows of numbers."""
        if value is None:
            return None
        rows, columns = struct.unpack_from("<II", value)
        numbers = struct.unpack_from(f"<{rows * columns}e", value, 8)
        return [list(numbers[start : start + columns]) for start in range(0, rows * columns, columns)]
