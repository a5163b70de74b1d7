"""Readers of annotation files: Karpathy's splits and nocaps."""
