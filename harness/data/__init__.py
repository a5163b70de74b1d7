"""Data sets: images, captions, vocabularies, and cached visual features."""
