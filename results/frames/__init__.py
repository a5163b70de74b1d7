"""Results as pandas data frames, for notebooks and scripts."""
