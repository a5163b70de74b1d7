"""Questions to a store, each answered with a few SQL queries."""
