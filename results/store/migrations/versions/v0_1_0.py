"""The tables of 0.1.0, as that release made them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0_1_0"
down_revision: str | None = None

_CASCADE = "CASCADE"
_EITHER = "(value IS NULL) <> (reason IS NULL)"


def upgrade() -> None:
    """Make every table."""
    op.create_table("schema_info", sa.Column("version", sa.Integer, primary_key=True, autoincrement=False))
    op.create_table(
        "datasets",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("fingerprint", sa.String, nullable=False, unique=True),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("root", sa.String, nullable=False),
        sa.Column("split_sizes", sa.JSON, nullable=False),
        sa.Column("recorded_at", sa.DateTime, nullable=False),
    )
    op.create_table(
        "skipped_images",
        sa.Column("dataset_id", sa.Integer, sa.ForeignKey("datasets.id", ondelete=_CASCADE), primary_key=True),
        sa.Column("file", sa.String, primary_key=True),
        sa.Column("reason", sa.String, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "images",
        sa.Column("dataset_id", sa.Integer, sa.ForeignKey("datasets.id", ondelete=_CASCADE), primary_key=True),
        sa.Column("image_id", sa.BigInteger, primary_key=True),
        sa.Column("file", sa.String, nullable=False),
        sa.Column("split", sa.String, nullable=False),
        sa.Column("domain", sa.String),
        sa.Column("references", sa.JSON, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "cells",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("key", sa.String, nullable=False, unique=True),
        sa.Column(
            "dataset_id", sa.Integer, sa.ForeignKey("datasets.id", ondelete=_CASCADE), nullable=False, index=True
        ),
        sa.Column("model", sa.String, nullable=False),
        sa.Column("role", sa.String, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("track", sa.String, nullable=False),
        sa.Column("code_version", sa.String, nullable=False),
        sa.Column("config", sa.JSON, nullable=False),
        sa.Column("signature", sa.JSON, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("reason", sa.String),
        sa.Column("error_class", sa.String),
        sa.Column("log_tail", sa.String),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("started_at", sa.DateTime),
        sa.Column("finished_at", sa.DateTime),
        sa.Column("checkpoint", sa.String),
        sa.Column("environment", sa.JSON, nullable=False),
        sa.Column("operators", sa.JSON, nullable=False),
        sa.CheckConstraint("role IN ('model', 'reference')", name="role"),
        sa.CheckConstraint("status IN ('planned', 'running', 'finished', 'failed', 'skipped')", name="status"),
        sa.CheckConstraint("status NOT IN ('failed', 'skipped') OR reason IS NOT NULL", name="failure_has_reason"),
    )
    op.create_table(
        "epochs",
        sa.Column("cell_id", sa.Integer, sa.ForeignKey("cells.id", ondelete=_CASCADE), primary_key=True),
        sa.Column("stage", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("epoch", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("stage_name", sa.String, nullable=False),
        sa.Column("objective", sa.String, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("learning_rate", sa.Double, nullable=False),
        sa.Column("train_loss", sa.Double, nullable=False),
        sa.Column("val_cider", sa.Double),
        sa.Column("seconds", sa.Double, nullable=False),
        sa.Column("images_per_second", sa.Double, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "captions",
        sa.Column("cell_id", sa.Integer, sa.ForeignKey("cells.id", ondelete=_CASCADE), primary_key=True),
        sa.Column("split", sa.String, primary_key=True),
        sa.Column("image_id", sa.BigInteger, primary_key=True),
        sa.Column("caption", sa.String, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "scores",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("cell_id", sa.Integer, sa.ForeignKey("cells.id", ondelete=_CASCADE), nullable=False),
        sa.Column("split", sa.String, nullable=False),
        sa.Column("domain", sa.String, nullable=False),
        sa.Column("metric", sa.String, nullable=False),
        sa.Column("value", sa.Double),
        sa.Column("reason", sa.String),
        sa.Column("unit", sa.String, nullable=False),
        sa.UniqueConstraint("cell_id", "split", "domain", "metric"),
        sa.CheckConstraint(_EITHER, name="score_value_or_reason"),
    )
    op.create_table(
        "image_scores",
        sa.Column("cell_id", sa.Integer, sa.ForeignKey("cells.id", ondelete=_CASCADE), primary_key=True),
        sa.Column("split", sa.String, primary_key=True),
        sa.Column("metric", sa.String, primary_key=True),
        sa.Column("scores", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "costs",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("cell_id", sa.Integer, sa.ForeignKey("cells.id", ondelete=_CASCADE), nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("value", sa.Double),
        sa.Column("reason", sa.String),
        sa.Column("unit", sa.String, nullable=False),
        sa.UniqueConstraint("cell_id", "name"),
        sa.CheckConstraint(_EITHER, name="cost_value_or_reason"),
    )
    op.execute("INSERT INTO schema_info (version) VALUES (1)")
