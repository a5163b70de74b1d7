"""How the tables changed from release to release: Alembic revisions, each named by the release that brought it.

A change of `results/store/schema.py` comes with a file in `versions/`, named by the new `schema.RELEASE`. Nothing here
is imported until a database is upgraded.
"""
