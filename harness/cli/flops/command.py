"""`bench flops`: what each architecture costs, before anything is trained."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.chosen import chosen_models, chosen_preset
from harness.cli.flops.table_vi import TABLE_VI, print_table_vi
from harness.cli.options import PluginOption
from harness.cli.tables import Format, format_table
from harness.utils.errors import BenchError

if TYPE_CHECKING:
    from harness.config.preset import Preset
    from harness.measure.backbone_flops import BackboneCount
    from harness.measure.flops import FlopCounts

_EPILOG = f"""
**Examples**

- `bench flops` : every model at its paper's size, on 144 x 1536 features and 10,000 words

- `bench flops --models 'expansionnet*' --operators` : which operators the multiply-accumulates come from

- `bench flops --models m2,updown --caption-length 16 --beam 3 --regions 36 --format latex`

- `bench flops --preset quick --set size.d_model=256` : at the sizes of a preset of `bench run`

- `bench flops --models expansionnet_v2 --with-backbone` : what the features cost on top

- `bench flops --preset {TABLE_VI}` : a published table, its convention, and the honest count beside it
"""
_PARTS = ("encoder", "step", "greedy", "beam", "teacher_forced", "training")
_DIM, _LENGTH = 1536, 144
_SEES_BACKBONE = {"grid", "regions", "pooled"}


def register(app: typer.Typer) -> None:
    """Add `bench flops`."""
    app.command("flops", epilog=_EPILOG)(flops)


@dataclass(slots=True)
class _Counted:
    """The models in the order asked for, with the count or the failure of each."""

    names: list[str]
    counts: dict[str, FlopCounts] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    backbone: BackboneCount | None = None

    def with_backbone(self, name: str) -> int | None:
        """Multiply-accumulates of a beam-searched caption with the backbone's, where the model looks through it."""
        from zoo import model_card

        if self.backbone is None or name not in self.counts:
            return None
        seen = self.backbone.count.macs if model_card(name).visual in _SEES_BACKBONE else 0
        return self.counts[name].beam.macs + seen


def flops(
    models: Annotated[str, typer.Option(help="Names or globs, separated by commas, or 'all'.")] = "all",
    preset: Annotated[
        str | None, typer.Option(help=f"Sizes of a preset of bench run, or {TABLE_VI}. Without it, each paper's.")
    ] = None,
    change: Annotated[list[str] | None, typer.Option("--set", help="KEY.PATH=VALUE: change the preset.")] = None,
    caption_length: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens a caption, the end token included.  [default: 20, or the preset's]"),
    ] = None,
    beam: Annotated[
        int | None, typer.Option(min=1, help="Width of the beam search.  [default: 5, or the preset's]")
    ] = None,
    position: Annotated[
        int | None, typer.Option(min=1, help="Of the one step, from 1.  [default: the caption's last]")
    ] = None,
    regions: Annotated[
        int | None, typer.Option(min=1, help=f"Grid cells or regions an image.  [default: {_LENGTH}]")
    ] = None,
    visual_dim: Annotated[int | None, typer.Option(min=1, help=f"Channels of the features.  [default: {_DIM}]")] = None,
    vocab_size: Annotated[int, typer.Option(min=5, help="Words, special tokens included.")] = 10_000,
    with_backbone: Annotated[bool, typer.Option("--with-backbone", help="Count the backbone too.")] = False,
    backbone: Annotated[str, typer.Option(help="Which: a timm model.")] = "swin_large_patch4_window12_384",
    image_size: Annotated[int | None, typer.Option(min=1, help="Pixels a side, if not the backbone's.")] = None,
    output: Annotated[Format, typer.Option("--format", help="How to write the table.")] = Format.table,
    operators: Annotated[bool, typer.Option("--operators", help="List counted and uncounted operators.")] = False,
    plugin: PluginOption = None,
) -> None:
    """Count parameters and multiply-accumulates (GMAC) of one image, by part.

    Encoder: once an image. Step: one word of one row. Greedy and beam: a whole caption, encoder included. Teacher:
    one teacher-forced pass. Training: the same forward and backward.
    """
    import torch

    from harness.utils.plugins import load_plugins

    torch.set_num_threads(1)  # a trace is thousands of tiny operators: handing them to threads only costs time
    if preset == TABLE_VI:
        if models != "all" or any((change, caption_length, beam, position, regions, visual_dim, image_size)):
            raise BenchError(
                f"--preset {TABLE_VI} is a published table, with sizes of its own", "leave out all but --format"
            )
        print_table_vi(output)
        return
    load_plugins(plugin)
    settings = chosen_preset(preset, change)
    found = _Counted(chosen_models(models))
    if with_backbone:
        from harness.measure.backbone_flops import count_backbone

        found.backbone = count_backbone(backbone, image_size)
    dim = visual_dim or (found.backbone.channels if found.backbone else _DIM)
    length = regions or (found.backbone.tokens if found.backbone else _LENGTH)
    tokens = caption_length or (settings.decoding.max_len if settings else 20)
    width = beam or (settings.decoding.beam_size if settings else 5)
    for name in found.names:
        try:
            found.counts[name] = _count(name, settings, dim, length, vocab_size, tokens, width, position)
        except Exception as error:  # whatever one model raises becomes its row; the others are counted all the same
            found.failures[name] = f"{type(error).__name__}: {' '.join(str(error).split())}"

    if output is Format.csv:
        typer.echo(_as_csv(found), nl=False)
    else:
        header = ["Model", "Params", "Encoder", "Step", "Greedy", f"Beam {width}", "Teacher", "Training"]
        header += ["With backbone"] * with_backbone
        typer.echo(format_table(header, [_row(name, found) for name in found.names], output), nl=False)
        conditions = f"One image of {length} x {dim} features, {vocab_size:,} words, {tokens} tokens."
        _print_notes([_UNIT, conditions, *_notes(found, operators)], output)
    for name, reason in found.failures.items():
        typer.echo(f"failed: {name}: {reason}", err=True)
    if found.failures:
        raise typer.Exit(1)


_UNIT = "GMAC: 10^9 multiply-accumulates, 1 MAC being 1 of fvcore's flops; training by torch's counter."


def _count(
    name: str,
    settings: Preset | None,
    dim: int,
    length: int,
    vocab_size: int,
    caption_length: int,
    beam_size: int,
    position: int | None,
) -> FlopCounts:
    from harness.measure.flops import count_flops
    from harness.measure.inputs import example_visual
    from zoo.registry import create_model

    arguments = settings.model_arguments(name) if settings else {}
    model = create_model(name, vocab_size=vocab_size, visual_dim=dim, **arguments)
    visual = example_visual(model.visual, length=length)
    return count_flops(model, visual, caption_length=caption_length, beam_size=beam_size, step_position=position)


def _row(name: str, found: _Counted) -> list[str]:
    count = found.counts.get(name)
    if count is None:
        return [name, "failed", *["-"] * (len(_PARTS) + (found.backbone is not None))]
    macs = [getattr(count, part).macs for part in _PARTS]
    if (whole := found.with_backbone(name)) is not None:
        macs.append(whole)
    return [name, f"{count.parameters / 1e6:.2f} M", *map(_gmac, macs)]


def _gmac(macs: int) -> str:
    return f"{macs / 1e9:.3f}" if macs < 100e9 else f"{macs / 1e9:.1f}"


def _notes(found: _Counted, operators: bool) -> list[str]:
    """What is not counted; with `operators` by model, of a whole caption by beam search."""
    notes = []
    if (backbone := found.backbone) is not None:
        notes.append(
            f"Backbone {backbone.name} at {backbone.image_size} x {backbone.image_size}: "
            f"{backbone.count.macs / 1e9:.2f} GMAC, {backbone.parameters / 1e6:.1f} M parameters."
        )
    if not operators:
        most = max((count.beam.uncounted_share for count in found.counts.values()), default=0.0)
        notes.append(
            f"Not counted: element-wise work, at most about {100 * most:.1f} % of all operations; --operators lists it."
        )
        return notes
    for name, count in found.counts.items():
        part = count.beam
        counted = [f"{operator} {_gmac(macs)}" for operator, macs in part.by_operator.items()]
        work = sum(part.element_wise.values()) + part.macs
        missing = [
            f"{operator} x{times}"
            + (f" ({100 * part.element_wise[operator] / work:.2f} %)" if operator in part.element_wise else "")
            for operator, times in part.uncounted.items()
        ]
        notes += [
            f"{name}, a caption by beam search. GMAC: {', '.join(counted)}.",
            f"Not counted, about {100 * part.uncounted_share:.2f} % of all operations: {', '.join(missing) or 'none'}.",
        ]
    return notes


def _print_notes(notes: Sequence[str], output: Format) -> None:
    """Below the table; LaTeX passes over them."""
    start = "% " if output is Format.latex else ""
    for note in notes:
        lead = "" if output is Format.latex else "\n" if output is Format.markdown else ""
        typer.echo(lead + textwrap.fill(note, 79, initial_indent=start, subsequent_indent=start))


def _as_csv(found: _Counted) -> str:
    """Exact multiply-accumulates, one line a model."""
    header = ["model", "parameters", *(f"{part}_mac" for part in _PARTS), "beam_and_backbone_mac"]
    rows = []
    for name in found.names:
        if name in found.counts:
            count = found.counts[name]
            macs = [*(getattr(count, part).macs for part in _PARTS), found.with_backbone(name)]
            uncounted = " ".join(f"{operator}:{times}" for operator, times in count.uncounted.items())
            share = f"{count.beam.uncounted_share:.6f}"
            rows.append(
                [name, count.parameters, *("" if value is None else value for value in macs), uncounted, share, ""]
            )
        else:
            rows.append([name, *[""] * (len(_PARTS) + 4), found.failures[name]])
    cells = [[str(value) for value in row] for row in rows]
    return format_table([*header, "uncounted", "uncounted_share", "failure"], cells, Format.csv)
