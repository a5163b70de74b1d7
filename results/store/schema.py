"""The tables. Whatever is not known is NULL with a reason beside it, never 0.

Rows refer to their run or data set by foreign keys that cascade. Names are stable: other tools may read them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

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

RELEASE = "v1_0_0"
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
    """Every table of the store."""

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

    `code` says which sources made it (`results.records.CodeRecord`), NULL where that was not recorded. `execution` is
    what executing needs beside `config`: paths, device, options that no score depends on. `progress` is what a running
    run is at, as its worker last said.
    """

    __tablename__ = "runs"
    __table_args__ = (
        CheckConstraint("role IN ('model', 'reference')", name="role"),
        CheckConstraint("kind IN ('trained', 'pretrained', 'hub', 'stored', 'reference')", name="kind"),
        CheckConstraint("status IN ('planned', 'running', 'finished', 'failed', 'skipped')", name="status"),
        CheckConstraint("status NOT IN ('failed', 'skipped') OR reason IS NOT NULL", name="failure_has_reason"),
        CheckConstraint("status <> 'finished' OR finished_at IS NOT NULL", name="finished_has_time"),
        *(_is_json(column, "object") for column in ("config", "signature", "environment", "operators")),
        *(_is_json(column, "object") for column in ("code", "execution", "progress")),
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
    config: Mapped[dict[str, Any]]
    signature: Mapped[dict[str, Any]]
    code: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    execution: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
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
    """One epoch of one stage of a run's training."""

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
    """A run's caption of an image."""

    __tablename__ = "captions"
    __table_args__ = (_CLUSTERED,)

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    split: Mapped[str] = mapped_column(primary_key=True)
    image_id: Mapped[int] = mapped_column(BigInteger, primary_key=True)
    caption: Mapped[str]


class Score(Base):
    """One metric over one domain ("overall" for all) of one split."""

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


class ImageScores(Base):
    """One metric of every image of one split, packed (see `PackedScores`)."""

    __tablename__ = "image_scores"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
    split: Mapped[str] = mapped_column(primary_key=True)
    metric: Mapped[str] = mapped_column(primary_key=True)
    scores: Mapped[dict[int, float]] = mapped_column(PackedScores)


class ImageInfluences(Base):
    """The influence of every image on a corpus score of one split (`SplitResult.influences`), packed as `ImageScores`.

    Nothing for metrics that are means of `ImageScores`, and for splits of one image.
    """

    __tablename__ = "image_influences"

    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True)
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
    words: Mapped[list[str]] = mapped_column(JSON)
    weights: Mapped[list[list[float]]] = mapped_column(PackedWeights)
    grid_height: Mapped[int | None]
    grid_width: Mapped[int | None]
    boxes: Mapped[list[list[float]] | None] = mapped_column(JSON(none_as_null=True))


class Cost(Base):
    """One measured cost of a run: parameters, GMAC, seconds, memory ..."""

    __tablename__ = "costs"
    __table_args__ = (
        UniqueConstraint("run_id", "name"),
        CheckConstraint(_EITHER, name="cost_value_or_reason"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"))
    name: Mapped[str]
    value: Mapped[float | None]
    reason: Mapped[str | None]
    unit: Mapped[str]
    low: Mapped[float | None]
    high: Mapped[float | None]
