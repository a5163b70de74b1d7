"""How much each image adds to BLEU and METEOR, so that these are tested over images too."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "v0_4_0"
down_revision = "v0_3_0"


def upgrade() -> None:
    """Add the table of influences, empty: `bench run` fills it for the runs that it re-uses."""
    op.create_table(
        "image_influences",
        sa.Column("cell_id", sa.Integer, sa.ForeignKey("cells.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("split", sa.String, primary_key=True),
        sa.Column("metric", sa.String, primary_key=True),
        sa.Column("scores", sa.LargeBinary, nullable=False),
    )
