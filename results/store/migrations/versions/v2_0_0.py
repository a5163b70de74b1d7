"""2.0.0: `config` is how a run is executed, with its preset once; what only describes it is in `record`.

The configuration of 1.0 becomes the record. Where its `execution` is there, the conversion of `upgrade` writes a
configuration. Ensembles become a kind of their own.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from alembic import context, op

revision = "v2_0_0"
down_revision = "v1_0_0"

_KINDS = ("trained", "pretrained", "hub", "captions", "ensemble", "stored", "reference")
_JSON_COLUMNS = ("config", "record", "signature", "environment", "operators", "code", "progress")


def upgrade() -> None:
    """Rename the columns, then convert row by row."""
    if op.get_bind().dialect.name == "sqlite":
        _rebuild_runs()
    else:
        op.drop_constraint("kind", "runs")
        op.alter_column("runs", "config", new_column_name="record")
        op.alter_column("runs", "execution", new_column_name="config")
        op.create_check_constraint("kind", "runs", f"kind IN ({', '.join(map(repr, _KINDS))})")
    _convert_rows()


def _rebuild_runs() -> None:
    """SQLite changes a column's checks by making its table anew, which must not be renamed while others refer to it."""
    checks = [
        sa.CheckConstraint("role IN ('model', 'reference')", name="role"),
        sa.CheckConstraint(f"kind IN ({', '.join(map(repr, _KINDS))})", name="kind"),
        sa.CheckConstraint("status IN ('planned', 'running', 'finished', 'failed', 'skipped')", name="status"),
        sa.CheckConstraint("status NOT IN ('failed', 'skipped') OR reason IS NOT NULL", name="failure_has_reason"),
        sa.CheckConstraint("status <> 'finished' OR finished_at IS NOT NULL", name="finished_has_time"),
    ]
    for column in _JSON_COLUMNS:
        check = f"CASE WHEN json_valid({column}) THEN json_type({column}) = 'object' ELSE {column} IS NULL END"
        checks.append(sa.CheckConstraint(check, name=f"{column}_is_json"))
    op.create_table(
        "runs_of_2",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("key", sa.String, nullable=False, unique=True),
        sa.Column("dataset_id", sa.Integer, sa.ForeignKey("datasets.id", ondelete="CASCADE"), nullable=False),
        sa.Column("model", sa.String, nullable=False),
        sa.Column("role", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("track", sa.String, nullable=False),
        sa.Column("code_version", sa.String, nullable=False),
        sa.Column("config", sa.JSON),
        sa.Column("record", sa.JSON, nullable=False),
        sa.Column("signature", sa.JSON, nullable=False),
        sa.Column("code", sa.JSON),
        sa.Column("progress", sa.JSON),
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
        *checks,
    )
    same = (
        "id, key, dataset_id, model, role, kind, seed, track, code_version, signature, code, progress, status, reason, "
        "error_class, log_tail, attempts, started_at, finished_at, checkpoint, environment, operators"
    )
    op.execute(f"INSERT INTO runs_of_2 ({same}, record, config) SELECT {same}, config, execution FROM runs")  # noqa: S608
    op.drop_table("runs")
    op.rename_table("runs_of_2", "runs")
    op.create_index("ix_runs_dataset_id", "runs", ["dataset_id"])


def _convert_rows() -> None:
    """Write the configuration of every row that says how it was executed, and the kind of ensembles."""
    convert: Callable[[Mapping[str, Any]], dict[str, Any] | None] | None = context.config.attributes.get("convert")
    connection = op.get_bind()
    runs = sa.table(
        "runs",
        *(sa.column(name, sa.JSON(none_as_null=True)) for name in ("config", "record", "signature")),
        *(sa.column(name) for name in ("id", "key", "model", "kind", "seed")),
    )
    for row in connection.execute(sa.select(runs)).mappings().all():
        kind = "ensemble" if "members" in row["record"] else row["kind"]
        execution = row["config"]
        config = None
        if execution is not None and convert is not None:
            config = convert({**row, "kind": kind, "execution": execution})
        changed = {"kind": kind, "config": json.loads(json.dumps(config))}
        connection.execute(sa.update(runs).where(runs.c.id == row["id"]).values(changed))
