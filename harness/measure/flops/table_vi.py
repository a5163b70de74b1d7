"""The counting convention of ExpansionNet v2's Table VI (IEEE Big Data 2023), which the paper does not state.

It was found by fitting: of all conventions tried, only this one gives the 12 printed numbers within their rounding. It
counts one teacher-forced pass of the authors' code per image, without the backbone, the projection of its features,
norms and other element-wise work, but with the vocabulary, and a reduce layer where the stack uses expansion. The mean
caption length is 12.44 tokens: COCO's 10.4 words and two special tokens, presumably.

The authors' code builds every expanded vector, which the zoo's models avoid; hence formulas instead of traces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zoo.registry import model_card

IMAGES = 5000
REGIONS, CHANNELS, VOCABULARY = 144, 1536, 10_000
MEAN_LENGTH = 12.44
MEAN_SQUARE = MEAN_LENGTH**2 + 10.0
"""Of the captions' lengths: their variance, about 10, belongs to the fit."""

ROWS = (
    "transformer_base",
    "expansionnet_v2/static-16",
    "expansionnet_v2/static-32",
    "expansionnet_v2/static-64",
    "expansionnet_v2/dynamic-4",
    "expansionnet_v2/dynamic-8",
    "expansionnet_v2/dynamic-16",
    "expansionnet_v2/static-64-dynamic-16",
    "expansionnet_v2/static-128x5-dynamic-16",
    "expansionnet_v2/static-256x5-dynamic-16",
    "expansionnet_v2/static-512x5-dynamic-16",
    "expansionnet_v2",
)
"""The table's rows in its order, by their names in the zoo."""


def macs_as_printed(name: str) -> float:
    """Multiply-accumulates of one image in the table's convention, for one of `ROWS`."""
    return teacher_forced_macs(model_card(name).arguments, MEAN_LENGTH, MEAN_SQUARE)


def teacher_forced_macs(arguments: Mapping[str, Any], length: float, square: float) -> float:
    """The same for captions of a mean length (tokens, begin or end token included) and mean square length.

    Args:
        arguments: as a card of ExpansionNet has them.
        length: mean of the lengths.
        square: mean of their squares, since attention and dynamic expansion relate every position to every other.
    """
    width, hidden = arguments["d_model"], arguments["d_ff"]
    static, dynamic = arguments["encoder"] == "static", arguments["decoder"] == "dynamic"
    layers, stacked = arguments["n_encoder_layers"], arguments["n_decoder_layers"]
    # Query, key, value and output; or, statically, key, two values and selector, and five products with N vectors.
    mixing = 4 * width**2 * REGIONS
    mixing += 5 * sum(arguments["static_lengths"]) * REGIONS * width if static else 2 * REGIONS**2 * width
    encoder = layers * (mixing + 2 * width * hidden * REGIONS) + static * layers * width**2 * REGIONS
    if dynamic:  # condition, key, two values and selector, and five products of T * N_E vectors with T others
        mixing = 5 * width**2 * length + 5 * arguments["dynamic_length"] * square * width
    else:
        mixing = 4 * width**2 * length + 2 * square * width
    attending = 2 * width**2 * (length + REGIONS) + 2 * length * REGIONS * width
    decoder = stacked * (mixing + attending + 2 * width * hidden * length) + dynamic * stacked * width**2 * length
    return float(encoder + decoder + VOCABULARY * width * length)
