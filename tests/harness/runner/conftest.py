"""The tiny captioner that counters are tested with, for the costs of training too."""

from tests.harness.measure.conftest import tiny, visual

__all__ = ["tiny", "visual"]
