"""The identity of a run: its settings, its code and the conditions of its scores."""
