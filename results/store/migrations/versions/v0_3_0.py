"""Which sources made each run, and scores against one reference less."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0_3_0"
down_revision = "v0_2_0"


def upgrade() -> None:
    """Add the column of sources, NULL for runs that did not record them, and the table of scores."""
    with op.batch_alter_table("cells") as batch:
        batch.add_column(sa.Column("code", sa.JSON))
    op.create_table(
        "held_out_scores",
        sa.Column("cell_id", sa.Integer, sa.ForeignKey("cells.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("split", sa.String, primary_key=True),
        sa.Column("metric", sa.String, primary_key=True),
        sa.Column("value", sa.Double),
        sa.Column("reason", sa.String),
        sa.CheckConstraint("(value IS NULL) <> (reason IS NULL)", name="held_out_score_value_or_reason"),
        sqlite_with_rowid=False,
    )
