"""Queries of a store, each a few SQL statements in one read transaction."""
