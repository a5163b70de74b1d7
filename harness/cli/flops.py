"""`bench flops`: what each architecture costs, before anything is trained."""

from __future__ import annotations

import csv
import io
import textwrap
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from harness.measure.flops import FlopCounts

_EPILOG = """
**Examples**

- `bench flops` : every model, on 144 x 1536 features and 10,000 words, as in the ExpansionNet v2 paper
- `bench flops "expansionnet*" --operators` : which operators the multiply-accumulates come from
- `bench flops --visual-length 49 --visual-dim 1280 --format csv > costs.csv`
"""
_PARTS = ("encoder", "step", "greedy", "beam", "teacher_forced")


class Format(StrEnum):
    """How the table is written."""

    table = "table"
    markdown = "markdown"
    csv = "csv"


def register(app: typer.Typer) -> None:
    """Add `bench flops`."""
    app.command("flops", epilog=_EPILOG)(flops)


def flops(
    pattern: Annotated[str, typer.Argument(help="A name, a shell pattern, or all.")] = "all",
    visual_dim: Annotated[int, typer.Option(min=1, help="Channels of the visual features.")] = 1536,
    visual_length: Annotated[int, typer.Option(min=1, help="Grid cells or regions an image.")] = 144,
    vocab_size: Annotated[int, typer.Option(min=5, help="Words, special tokens included.")] = 10_000,
    caption_length: Annotated[int, typer.Option(min=1, help="Tokens a caption, the end token included.")] = 20,
    beam_size: Annotated[int, typer.Option(min=1, help="Width of the beam search.")] = 5,
    output: Annotated[Format, typer.Option("--format", help="How to write the table.")] = Format.table,
    operators: Annotated[bool, typer.Option("--operators", help="List counted and uncounted operators.")] = False,
) -> None:
    """Count parameters and multiply-accumulates (GMAC) of one image, by part.

    Encoder: once an image. Step: one word of one row, at the caption's last position. Greedy and beam: a whole
    caption, encoder included. Teacher-forced: one pass in training. The visual backbone is not part of it.
    """
    from harness.errors import BenchError
    from zoo.registry import select_models

    names = select_models(pattern)
    if not names:
        raise BenchError(f"no model matches {pattern!r}", hint="`bench models` lists them all")
    counts: dict[str, FlopCounts] = {}
    failures: dict[str, str] = {}
    for name in names:
        try:
            counts[name] = _count(name, visual_dim, visual_length, vocab_size, caption_length, beam_size)
        except Exception as error:  # whatever one model raises becomes its row; the others are counted all the same
            failures[name] = f"{type(error).__name__}: {' '.join(str(error).split())}"

    if output is Format.csv:
        typer.echo(_as_csv(names, counts, failures), nl=False)
    else:
        rows = [_row(name, counts.get(name)) for name in names]
        header = ["Model", "Parameters", "Encoder", "Step", "Greedy", f"Beam {beam_size}", "Teacher"]
        _print_table(header, rows) if output is Format.table else _print_markdown(header, rows)
        typer.echo("\nGMAC: 10^9 multiply-accumulates, 1 MAC being 1 of fvcore's flops. One image")
        typer.echo(f"of {visual_length} x {visual_dim} features, {vocab_size:,} words, {caption_length} tokens.")
        _print_operators(counts, operators)
    for name, reason in failures.items():
        typer.echo(f"failed: {name}: {reason}", err=True)
    if failures:
        raise typer.Exit(1)


def _count(name: str, dim: int, length: int, vocab_size: int, caption_length: int, beam_size: int) -> FlopCounts:
    import torch

    from harness.measure.flops import count_flops
    from harness.measure.inputs import example_visual
    from zoo.registry import create_model

    torch.set_num_threads(1)  # a trace is thousands of tiny operators: handing them to threads only costs time
    model = create_model(name, vocab_size=vocab_size, visual_dim=dim)
    visual = example_visual(model.visual, length=length)
    return count_flops(model, visual, caption_length=caption_length, beam_size=beam_size)


def _row(name: str, count: FlopCounts | None) -> list[str]:
    if count is None:
        return [name, "failed", *["-"] * len(_PARTS)]
    return [name, f"{count.parameters:,}", *(f"{getattr(count, part).macs / 1e9:.4f}" for part in _PARTS)]


def _print_table(header: list[str], rows: list[list[str]]) -> None:
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE, padding=(0, 1, 0, 0), pad_edge=False)
    for title in header:
        table.add_column(title, justify="left" if title == "Model" else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)


def _print_markdown(header: list[str], rows: list[list[str]]) -> None:
    for cells in (header, ["---", *["---:"] * (len(header) - 1)], *rows):
        typer.echo(f"| {' | '.join(cells)} |")


def _print_operators(counts: dict[str, FlopCounts], wanted: bool) -> None:
    """Of a whole caption by beam search: where the GMAC come from, and what is not counted."""
    if not wanted:
        kinds = len({operator for count in counts.values() for operator in count.uncounted})
        typer.echo(f"Not counted: element-wise work, {kinds} kinds of operator; --operators lists them.")
        return
    for name, count in counts.items():
        counted = [f"{operator} {macs / 1e9:.4f}" for operator, macs in count.beam.by_operator.items()]
        uncounted = [f"{operator} x{times}" for operator, times in count.uncounted.items()]
        typer.echo(f"\n{name}, a caption by beam search")
        for title, entries in (("GMAC: ", counted), ("not counted: ", uncounted or ["nothing"])):
            typer.echo(textwrap.fill(title + ", ".join(entries), 79, initial_indent="  ", subsequent_indent="    "))


def _as_csv(names: list[str], counts: dict[str, FlopCounts], failures: dict[str, str]) -> str:
    """Exact multiply-accumulates, one line a model."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["model", "parameters", *(f"{part}_mac" for part in _PARTS), "uncounted", "failure"])
    for name in names:
        if name in counts:
            count = counts[name]
            uncounted = " ".join(f"{operator}:{times}" for operator, times in count.uncounted.items())
            macs = [getattr(count, part).macs for part in _PARTS]
            writer.writerow([name, count.parameters, *macs, uncounted, ""])
        else:
            writer.writerow([name, *[""] * (len(_PARTS) + 2), failures[name]])
    return text.getvalue()
