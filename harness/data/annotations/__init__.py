"""Annotation files of public data sets: Karpathy's splits and nocaps."""
