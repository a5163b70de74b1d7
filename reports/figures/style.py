"""How figures of papers look: sizes, fonts, and the colours and shapes of models."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

COLUMN_WIDTH: Final = 3.3  # inches of a column of a two-column paper
FONT_SIZE: Final = 7.5
SMALL: Final = 6.5
GREY: Final = "#8a8a8a"
FAINT: Final = "#c8c8c8"
INK: Final = "#222222"
# Okabe and Ito's colours, which stay apart for colour-blind readers, less the yellow, which is faint on paper.
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_SHAPES: Final = ("o", "s", "^", "D", "v", "P", "X")
STYLED: Final = len(_COLOURS)
BETTER: Final = "#0072B2"
WORSE: Final = "#E69F00"
SAME: Final = "#d9d9d9"

SETTINGS: Final = {
    "font.family": "sans-serif",
    "font.size": FONT_SIZE,
    "axes.labelsize": FONT_SIZE,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "axes.linewidth": 0.6,
    "axes.edgecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.0,
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
    "svg.hashsalt": "captionbench",  # the same figure is the same file
    "savefig.dpi": 300,
}


@dataclass(frozen=True, slots=True)
class Mark:
    """The colour and the shape of a model's points."""

    colour: str = FAINT
    shape: str = "o"


def marks(models: Iterable[str]) -> dict[str, Mark]:
    """By model, for as many as there are colours, the first first; the others are grey."""
    distinct = dict.fromkeys(models)
    styled = {name: Mark(*look) for name, look in zip(distinct, zip(_COLOURS, _SHAPES, strict=True), strict=False)}
    return {name: styled.get(name, Mark()) for name in distinct}
