"""The embedded data set of drawn scenes."""
