"""The tables. Whatever is not known is NULL with a reason beside it, never 0.

Rows refer to their run or data set by foreign keys that cascade. Names are stable: other tools may read them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from results.store.columns import PackedScores, PackedWeights, UtcDateTime

RELEASE = "v0_4_0"
"""The release that changed the tables last: the newest revision in `results/store/migrations/versions`."""

# Composite keys cluster the rows of one run together and spare a second copy of the key.
_CLUSTERED = {"sqlite_with_rowid": False}
_EITHER = "(value IS NULL) <> (reason IS NULL)"


class Base(DeclarativeBase):
    """Every table of the store."""

    type_annotation_map = {dict[str, Any]: JSON, datetime: UtcDateTime, float: Double}  # noqa: RUF012


REVISION = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
"""One row: the release that the tables are of. It is Alembic's own table, hence no part of `Base`."""


class SchemaInfo(Base):
    """One row, always 2: release 0.1.0, which looks here alone, then says that a newer one wrote the store."""

    __tablename__ = "schema_info"

    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class DatasetRow(Base):
    """A data set as it was used, one for every fingerprint."""

    __tablename__ = "datasets"

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
    __table_args__ = (_CLUSTERED,)

    dataset_id: Mapped[int] = mapped_column(ForeignKey("datasets.id", ondelete="CASCADE"), primary_key=True)
    image_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    file: Mapped[str]
    split: Mapped[str]
    domain: Mapped[str | None]
    references: Mapped[list[str]] = mapped_column(JSON)


class RunRow(Base):
    """A planned run and its status.

    `code` says which sources made it (`results.records.CodeRecord`); NULL before 0.3.0, which did not record it.
    """

    __tablename__ = "cells"
    __table_args__ = (
        CheckConstraint("role IN ('model', 'reference')", name="role"),
        CheckConstraint("status IN ('planned', 'running', 'finished', 'failed', 'skipped')", name="status"),
        CheckConstraint("status NOT IN ('failed', 'skipped') OR reason IS NOT NULL", name="failure_has_reason"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(unique=True)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("datasets.id", ondelete="CASCADE"), index=True)
    model: Mapped[str]
    role: Mapped[str]
    seed: Mapped[int] = mapped_column(BigInteger)
    track: Mapped[str]
    code_version: Mapped[str]
    config: Mapped[dict[str, Any]]
    signature: Mapped[dict[str, Any]]
    code: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
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
    """One epoch of one stage of a run's training."""

    __tablename__ = "epochs"
    __table_args__ = (_CLUSTERED,)

    cell_id: Mapped[int] = mapped_column(ForeignKey("cells.id", ondelete="CASCADE"), primary_key=True)
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
    """A run's caption of an image."""

    __tablename__ = "captions"
    __table_args__ = (_CLUSTERED,)

    cell_id: Mapped[int] = mapped_column(ForeignKey("cells.id", ondelete="CASCADE"), primary_key=True)
    split: Mapped[str] = mapped_column(primary_key=True)
    image_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    caption: Mapped[str]


class Score(Base):
    """One metric over one domain ("overall" for all) of one split."""

    __tablename__ = "scores"
    __table_args__ = (
        UniqueConstraint("cell_id", "split", "domain", "metric"),
        CheckConstraint(_EITHER, name="score_value_or_reason"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    cell_id: Mapped[int] = mapped_column(ForeignKey("cells.id", ondelete="CASCADE"))
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

    cell_id: Mapped[int] = mapped_column(ForeignKey("cells.id", ondelete="CASCADE"), primary_key=True)
    split: Mapped[str] = mapped_column(primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float | None]
    reason: Mapped[str | None]


class ImageScores(Base):
    """One metric of every image of one split, packed (see `PackedScores`)."""

    __tablename__ = "image_scores"

    cell_id: Mapped[int] = mapped_column(ForeignKey("cells.id", ondelete="CASCADE"), primary_key=True)
    split: Mapped[str] = mapped_column(primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    scores: Mapped[dict[int, float]] = mapped_column(PackedScores)


class ImageInfluences(Base):
    """The influence of every image on a corpus score of one split (`SplitResult.influences`), packed as `ImageScores`.

    Nothing for metrics that are means of `ImageScores`, for splits of one image, and before 0.4.0.
    """

    __tablename__ = "image_influences"

    cell_id: Mapped[int] = mapped_column(ForeignKey("cells.id", ondelete="CASCADE"), primary_key=True)
    split: Mapped[str] = mapped_column(primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    scores: Mapped[dict[int, float]] = mapped_column(PackedScores)


class AttentionMap(Base):
    """A run's attention weights for each word of a caption: over the cells of a grid, or over regions with their boxes.

    `words` is a JSON list, `boxes` a JSON list of x1, y1, x2, y2 in fractions of the image.
    """

    __tablename__ = "attention_maps"
    __table_args__ = (
        ForeignKeyConstraint(
            ["cell_id", "split", "image_id"],
            ["captions.cell_id", "captions.split", "captions.image_id"],
            ondelete="CASCADE",
        ),
        CheckConstraint(
            "(boxes IS NULL) <> (grid_height IS NULL) AND (grid_height IS NULL) = (grid_width IS NULL)",
            name="grid_or_boxes",
        ),
    )

    cell_id: Mapped[int] = mapped_column(primary_key=True)
    split: Mapped[str] = mapped_column(primary_key=True)
    image_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    words: Mapped[list[str]] = mapped_column(JSON)
    weights: Mapped[list[list[float]]] = mapped_column(PackedWeights)
    grid_height: Mapped[int | None]
    grid_width: Mapped[int | None]
    boxes: Mapped[list[list[float]] | None] = mapped_column(JSON(none_as_null=True))


class Cost(Base):
    """One measured cost of a run: parameters, GMAC, seconds, memory ..."""

    __tablename__ = "costs"
    __table_args__ = (
        UniqueConstraint("cell_id", "name"),
        CheckConstraint(_EITHER, name="cost_value_or_reason"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    cell_id: Mapped[int] = mapped_column(ForeignKey("cells.id", ondelete="CASCADE"))
    name: Mapped[str]
    value: Mapped[float | None]
    reason: Mapped[str | None]
    unit: Mapped[str]
    low: Mapped[float | None]
    high: Mapped[float | None]
