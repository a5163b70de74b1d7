"""`bench flops --preset expansionnet-table-vi`: a published table of computation, beside what captioning takes."""

from __future__ import annotations

import typer

from harness.cli.tables import TableFormat, format_table, print_notes

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
    from harness.measure.flops.table_vi import ROWS
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
    from harness.measure.flops.table_vi import CHANNELS, IMAGES, REGIONS, VOCABULARY, macs_as_printed
    from harness.measure.inputs import example_visual
    from results.published import published_for
    from zoo import create_model

    [printed] = published_for(name, metric="GMAC-table")
    model = create_model(name, vocab_size=VOCABULARY, visual_dim=CHANNELS)
    caption = count_caption(model, example_visual(model.visual, length=REGIONS), _LENGTH, _BEAM).macs
    each = [macs * IMAGES / 1e12 for macs in (macs_as_printed(name), caption, caption + backbone)]
    shown = name.removeprefix("expansionnet_v2/")
    return [shown, f"{printed.value:.2f}", f"{each[0]:.3f}", f"{each[1]:.2f}", f"{each[2]:.1f}"]
