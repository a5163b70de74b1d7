"""Intervals of scores and costs, and attention maps."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0_2_0"
down_revision = "v0_1_0"


def upgrade() -> None:
    """Add the columns of intervals, empty, and the table of attention maps."""
    for table in ("scores", "costs"):
        with op.batch_alter_table(table) as batch:
            batch.add_column(sa.Column("low", sa.Double))
            batch.add_column(sa.Column("high", sa.Double))
    op.create_table(
        "attention_maps",
        sa.Column("cell_id", sa.Integer, primary_key=True),
        sa.Column("split", sa.String, primary_key=True),
        sa.Column("image_id", sa.BigInteger, primary_key=True),
        sa.Column("words", sa.JSON, nullable=False),
        sa.Column("weights", sa.LargeBinary, nullable=False),
        sa.Column("grid_height", sa.Integer),
        sa.Column("grid_width", sa.Integer),
        sa.Column("boxes", sa.JSON),
        sa.ForeignKeyConstraint(
            ["cell_id", "split", "image_id"],
            ["captions.cell_id", "captions.split", "captions.image_id"],
            ondelete="CASCADE",
        ),
        sa.CheckConstraint(
            "(boxes IS NULL) <> (grid_height IS NULL) AND (grid_height IS NULL) = (grid_width IS NULL)",
            name="grid_or_boxes",
        ),
    )
    op.execute("UPDATE schema_info SET version = 2")  # 0.1.0 reads it, and says that the store is newer
