"""What Alembic runs: the revisions, in the transaction of the connection that it is given."""

from alembic import context

from results.store.schema import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # SQLite changes a column by making its table anew
)
context.run_migrations()
