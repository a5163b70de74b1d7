"""CHAIR-i and CHAIR-s of captions whose images' objects are known.

Rohrbach et al., "Object Hallucination in Image Captioning", EMNLP 2018, section 3.1:
CHAIR-i = mentions of objects that the image does not show / all mentions of objects,
CHAIR-s = captions with such a mention / all captions. Lower is better, and 0 is reached by naming nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from harness.metrics.chair.objects import KnownObjects
from harness.metrics.contract import Array, Metric, Statistics


class Chair(Metric):
    """Statistics: mentions of what is not shown, all mentions, whether there is any of the former, and a one."""

    names = ("CHAIR-i", "CHAIR-s")

    def score(self, totals: Array) -> Array:
        """Both of (..., 4) sums; CHAIR-i is 0 where nothing is named."""
        shares = np.zeros((*totals.shape[:-1], 2))
        np.divide(totals[..., 0::2], totals[..., 1::2], out=shares, where=totals[..., 1::2] > 0)
        return shares


CHAIR: Final = Chair()


def chair(captions: Mapping[int, str], references: Mapping[int, Sequence[str]], objects: KnownObjects) -> Statistics:
    """Statistics (N, 4) of one caption of each image, in the order of `captions`.

    Args:
        references: of the same images, which must all be in `objects`.
    """
    shown = objects.shown(references)
    rows = []
    for image_id, named in zip(captions, objects.words.mentioned(list(captions.values())), strict=True):
        wrong = sum(category not in shown[image_id] for category in named)
        rows.append([wrong, len(named), wrong > 0, 1])
    return Statistics(CHAIR, np.array(rows, np.float64).reshape(-1, 4))
