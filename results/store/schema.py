"""The tables, and the types of their columns. Whatever is not known is NULL with a reason beside it, never 0.

Rows refer to their run or data set by foreign keys that cascade. Names are stable: other tools may read them.
"""

import struct
from datetime import UTC, datetime
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

from results.records import Role, RunKind, Status

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

    def process_bind_param(self, value: Any, dialect: Dialect) -> bytes:  # noqa: ARG002
        """To bytes; an id outside int64 raises OverflowError."""
        ids = sorted(value)
        return np.array(ids, "<i8").tobytes() + np.array([value[image_id] for image_id in ids], "<f8").tobytes()

    def process_result_value(self, value: Any, dialect: Dialect) -> dict[int, float]:  # noqa: ARG002
        """To a dictionary ascending by image id; ValueError where the blob is damaged."""
        ids, scores = _unpack_scores(value)
        return dict(zip(ids.tolist(), scores.tolist(), strict=True))


class ScoreArrays(TypeDecorator[tuple[NDArray[np.int64], NDArray[np.float64]]]):
    """`PackedScores` read as arrays: `select(type_coerce(ImageScores.scores, ScoreArrays))`."""

    impl = LargeBinary
    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> tuple[NDArray[np.int64], NDArray[np.float64]]:  # noqa: ARG002
        """To ascending image ids and their scores; ValueError where the blob is damaged."""
        return _unpack_scores(value)


def _unpack_scores(blob: Any) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    if len(blob) % 16:
        raise ValueError(f"{len(blob)} bytes are no ids and scores")
    half = len(blob) // 2
    ids = np.frombuffer(blob[:half], "<i8")
    scores = np.frombuffer(blob[half:], "<f8")
    if (ids[1:] <= ids[:-1]).any():
        raise ValueError("the ids do not ascend")
    if not np.isfinite(scores).all():
        raise ValueError("a score is not finite")
    return ids, scores


class PackedWeights(TypeDecorator[list[list[float]]]):
    """A matrix in half precision as one blob: rows and columns (uint32), then the numbers by rows, little-endian.

    Half precision keeps three digits of an attention weight, more than any picture shows, in a quarter of the space.
    """

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> bytes:  # noqa: ARG002
        """To bytes; rows of different lengths raise struct.error, numbers beyond 65,504 OverflowError."""
        rows = len(value)
        columns = len(value[0])
        return struct.pack(f"<II{rows * columns}e", rows, columns, *(number for row in value for number in row))

    def process_result_value(self, value: Any, dialect: Dialect) -> list[list[float]]:  # noqa: ARG002
        """To rows of numbers; ValueError where the blob is damaged."""
        if len(value) < _SIZE.size:
            raise ValueError(f"{len(value)} bytes are no matrix")
        rows, columns = _SIZE.unpack_from(value)
        if len(value) != _SIZE.size + 2 * rows * columns:
            raise ValueError(f"{len(value)} bytes are no matrix of {rows} x {columns}")
        numbers = np.frombuffer(value, "<f2", offset=_SIZE.size)
        if not np.isfinite(numbers).all():
            raise ValueError("a weight is not finite")
        weights: list[list[float]] = numbers.reshape(rows, columns).tolist()
        return weights


RELEASE = "v2_0_0"
"""The release that changed the tables last: the newest revision in `results/store/migrations/versions`."""

# Composite keys cluster the rows of one run together and spare a second copy of the key.
_CLUSTERED = {"sqlite_with_rowid": False}
_EITHER = "(value IS NULL) <> (reason IS NULL)"


def _is_json(column: str, kind: Literal["object", "array"]) -> CheckConstraint:
    """That a column holds a JSON object or array, or nothing: SQLite takes any text as JSON, servers look at it."""
    check = f"CASE WHEN json_valid({column}) THEN json_type({column}) = '{kind}' ELSE {column} IS NULL END"
    name = column.strip('"')
    return CheckConstraint(check, name=f"{name}_is_json").ddl_if(dialect="sqlite")


class Base(DeclarativeBase):
    type_annotation_map = {dict[str, Any]: JSON, datetime: UtcDateTime, float: Double}  # noqa: RUF012


REVISION = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
"""One row: the release that the tables are of. It is Alembic's own table, hence no part of `Base`."""


class DatasetRow(Base):
    """A data set as it was used, one for every fingerprint."""

    __tablename__ = "datasets"
    __table_args__ = (_is_json("split_sizes", "object"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    fingerprint: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    root: Mapped[str]
    split_sizes: Mapped[dict[str, Any]]
    recorded_at: Mapped[datetime]


class SkippedImage(Base):
    """A picture that was left out, with the reason."""

    __tablename__ = "skipped_images"
    __table_args__ = (_CLUSTERED,)

    dataset_id: Mapped[int] = mapped_column(ForeignKey("datasets.id", ondelete="CASCADE"), primary_key=True)
    file: Mapped[str] = mapped_column(primary_key=True)
    reason: Mapped[str]


class Image(Base):
    """An image of an evaluated split; `references` is a JSON list of its captions, `file` relative to the root."""

    __tablename__ = "images"
    __table_args__ = (_is_json('"references"', "array"), _CLUSTERED)

    dataset_id: Mapped[int] = mapped_column(ForeignKey("datasets.id", ondelete="CASCADE"), primary_key=True)
    image_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    file: Mapped[str]
    split: Mapped[str]
    domain: Mapped[str | None]
    references: Mapped[list[str]] = mapped_column(JSON)


class RunRow(Base):
    """A planned run and its status.

    `config` is how it is executed (`harness.config.run`), NULL where that is not known; `record` is what only describes
    it. `code` says which sources made it (`results.records.CodeRecord`), NULL where that was not recorded. `progress`
    is what the latest attempt last reported of itself.
    """

    __tablename__ = "runs"
    __table_args__ = (
        *(
            CheckConstraint(f"{column} IN ({', '.join(map(repr, get_args(words)))})", name=column)
            for column, words in (("role", Role), ("kind", RunKind), ("status", Status))
        ),
        CheckConstraint("status NOT IN ('failed', 'skipped') OR reason IS NOT NULL", name="failure_has_reason"),
        CheckConstraint("status <> 'finished' OR finished_at IS NOT NULL", name="finished_has_time"),
        *(_is_json(column, "object") for column in ("config", "record", "signature", "environment", "operators")),
        *(_is_json(column, "object") for column in ("code", "progress")),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(unique=True)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("datasets.id", ondelete="CASCADE"), index=True)
    model: Mapped[str]
    role: Mapped[str]
    kind: Mapped[str]
    seed: Mapped[int] = mapped_column(BigInteger)
    track: Mapped[str]
    code_version: Mapped[str]
    config: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    record: Mapped[dict[str, Any]]
    signature: Mapped[dict[str, Any]]
    code: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    progress: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    status: Mapped[str]
    reason: Mapped[str | None]
    error_class: Mapped[str | None]
    log_tail: Mapped[str | None]
    attempts: Mapped[int]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    checkpoint: Mapped[str | None]
    environment: Mapped[dict[str, Any]]
    operators: Mapped[dict[str, Any]]


class Epoch(Base):
    __tablename__ = "epochs"
    __table_args__ = (_CLUSTERED,)

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    stage: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    epoch: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    stage_name: Mapped[str]
    objective: Mapped[str]
    step: Mapped[int] = mapped_column(BigInteger)
    learning_rate: Mapped[float]
    train_loss: Mapped[float]
    val_cider: Mapped[float | None]
    seconds: Mapped[float]
    images_per_second: Mapped[float]


class Caption(Base):
    __tablename__ = "captions"
    __table_args__ = (_CLUSTERED,)

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    split: Mapped[str] = mapped_column(primary_key=True)
    image_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    caption: Mapped[str]


class Score(Base):
    __tablename__ = "scores"
    __table_args__ = (
        UniqueConstraint("run_id", "split", "domain", "metric"),
        CheckConstraint(_EITHER, name="score_value_or_reason"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    split: Mapped[str]
    domain: Mapped[str]
    metric: Mapped[str]
    value: Mapped[float | None]
    reason: Mapped[str | None]
    unit: Mapped[str]
    low: Mapped[float | None]
    high: Mapped[float | None]


class HeldOutScore(Base):
    """One metric over one split against one reference less an image: the mean over leaving out each in turn.

    What a person's caption can be compared with, which is scored against the other references.
    """

    __tablename__ = "held_out_scores"
    __table_args__ = (CheckConstraint(_EITHER, name="held_out_score_value_or_reason"), _CLUSTERED)

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    split: Mapped[str] = mapped_column(primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float | None]
    reason: Mapped[str | None]


class _OfImages:
    """A number of every image of one split, by metric, packed (see `PackedScores`)."""

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    split: Mapped[str] = mapped_column(primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    scores: Mapped[dict[int, float]] = mapped_column(PackedScores)


class ImageScores(_OfImages, Base):
    __tablename__ = "image_scores"


class ImageInfluences(_OfImages, Base):
    """The influence of every image on a corpus score (`SplitResult.influences`).

    Nothing for metrics that are means of `ImageScores`, and for splits of one image.
    """

    __tablename__ = "image_influences"


class AttentionMap(Base):
    """A run's attention weights for each word of a caption: over the cells of a grid, or over regions with their boxes.

    `words` is a JSON list: the words, each with a row of weights, and then numbers of places (from 0), each with a row
    of the encoder's attention from there. `boxes` is a JSON list of x1, y1, x2, y2 in fractions of the image.
    """

    __tablename__ = "attention_maps"
    __table_args__ = (
        ForeignKeyConstraint(
            ["run_id", "split", "image_id"],
            ["captions.run_id", "captions.split", "captions.image_id"],
            ondelete="CASCADE",
        ),
        CheckConstraint(
            "(boxes IS NULL) <> (grid_height IS NULL) AND (grid_height IS NULL) = (grid_width IS NULL)",
            name="grid_or_boxes",
        ),
        _is_json("words", "array"),
        _is_json("boxes", "array"),
    )

    run_id: Mapped[int] = mapped_column(primary_key=True)
    split: Mapped[str] = mapped_column(primary_key=True)
    image_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    words: Mapped[list[str | int]] = mapped_column(JSON)
    weights: Mapped[list[list[float]]] = mapped_column(PackedWeights)
    grid_height: Mapped[int | None]
    grid_width: Mapped[int | None]
    boxes: Mapped[list[list[float]] | None] = mapped_column(JSON(none_as_null=True))


class Cost(Base):
    __tablename__ = "costs"
    __table_args__ = (UniqueConstraint("run_id", "name"), CheckConstraint(_EITHER, name="cost_value_or_reason"))

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    name: Mapped[str]
    value: Mapped[float | None]
    reason: Mapped[str | None]
    unit: Mapped[str]
    low: Mapped[float | None]
    high: Mapped[float | None]
