"""Building blocks that have a name in the literature."""
