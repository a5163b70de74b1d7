"""Tuning: the same search with the same budget for every model, judged on validation CIDEr-D."""
