"""`bench flops --preset expansionnet-table-vi`: a published table of computation, beside what captioning takes.

The paper does not state the counting convention of ExpansionNet v2's Table VI (IEEE Big Data 2023). It was found by
fitting: of all conventions tried, only this one gives the 12 printed numbers within their rounding. It counts one
teacher-forced pass of the authors' code per image, without the backbone, the projection of its features, norms and
other element-wise work, but with the vocabulary, and a reduce layer where the stack uses expansion. The mean caption
length is 12.44 tokens: COCO's 10.4 words and two special tokens, presumably. The authors' code builds every expanded
vector, which the zoo's models avoid; hence formulas instead of traces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from harness.cli.tables import TableFormat, format_table, print_notes
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


TABLE_VI = "expansionnet-table-vi"
_BACKBONE = "swin_large_patch4_window12_384"
_BEAM, _LENGTH = 5, 20
_NOTES = (
    "Unit: 10^12 multiply-accumulates over 5,000 images, one image being a picture of 384 x 384 pixels seen as 144 x "
    "1536 features.",
    "Printed: Table VI of ExpansionNet v2 (IEEE Big Data 2023), which calls them FLOPs. Convention: one teacher-forced "
    "pass of the authors' code over captions of 12.44 tokens on average; without backbone, input projection, norms and "
    "element-wise work; a reduce layer only beside expansion. It was inferred from the numbers; the paper states none.",
    f"Beam {_BEAM}: what a caption of {_LENGTH} tokens really takes here, counted by fvcore, with input projection and "
    "norms; then with the backbone.",
)


def print_table_vi(output: TableFormat) -> None:
    """Print all twelve rows; counting takes about a minute, so that its progress is shown beside it."""
    from rich.console import Console

    from harness.measure.flops.backbone import count_backbone
    from harness.utils.progress import Reporter

    rows = []
    with Reporter(Console(stderr=True, highlight=False)) as reporter, reporter.task("counting", len(ROWS) + 1) as task:
        backbone = count_backbone(_BACKBONE).count.macs
        task.reach(1, _BACKBONE)
        for number, name in enumerate(ROWS, 2):
            rows.append(_row(name, backbone))
            task.reach(number, name)
    header = ["Row", "Printed", "Convention", f"Beam {_BEAM}", f"Beam {_BEAM} + Swin-L"]
    typer.echo(format_table(header, rows, output), nl=False)
    print_notes(_NOTES, output, "\n")


def _row(name: str, backbone: int) -> list[str]:
    """A row's printed and counted numbers; `backbone` in multiply-accumulates an image."""
    from harness.measure.flops.counting import count_caption
    from harness.measure.inputs import example_visual
    from results.published import published_for
    from zoo import create_model

    [printed] = published_for(name, metric="GMAC-table")
    model = create_model(name, vocab_size=VOCABULARY, visual_dim=CHANNELS)
    caption = count_caption(model, example_visual(model.visual, length=REGIONS), _LENGTH, _BEAM).macs
    each = [macs * IMAGES / 1e12 for macs in (macs_as_printed(name), caption, caption + backbone)]
    shown = name.removeprefix("expansionnet_v2/")
    return [shown, f"{printed.value:.2f}", f"{each[0]:.3f}", f"{each[1]:.2f}", f"{each[2]:.1f}"]
