"""The tables of 1.0.0, from which later releases go on; a new store gets the newest ones of `results.store.schema`."""

revision = "v1_0_0"
down_revision: str | None = None


def upgrade() -> None:
    """Nothing: the oldest store that there is has these tables."""
