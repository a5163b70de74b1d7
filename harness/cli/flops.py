"""`bench flops`: what each architecture costs, before anything is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from harness.cli import options
from harness.cli.inputs import doing, optional_preset, progress_aside
from harness.cli.output import TableFormat, echo, format_table, print_notes
from harness.config.limits import MAX_BEAM, MAX_CHANNELS, MAX_REGIONS, MAX_TOKENS
from harness.utils.errors import BenchError
from harness.utils.plugins import contain_exits, load_plugins, place_in_plugin
from zoo.errors import ZooError
from zoo.registry import model_card

if TYPE_CHECKING:
    from harness.benchmark.hub_model import CheckpointCount
    from harness.measure.flops import BackboneCount, FlopCounts

T = TypeVar("T")

TABLE_VI = "expansionnet-table-vi"
EXAMPLES = f"""
bench flops   # every model at its paper's size, on 144 x 1536 features and 10,000 words
bench flops --models 'expansionnet*' --operators   # which operators the multiply-accumulates come from
bench flops --models m2,updown --caption-length 16 --beam 3 --regions 36 --format latex
bench flops --preset quick --set size.d_model=256   # at the sizes of a preset of `bench run`
bench flops --models expansionnet_v2 --with-backbone   # what the features cost on top
bench flops --models hf:FOLDER,git --hub prompt='a photo of'   # a checkpoint of the hub
bench flops --preset {TABLE_VI}   # a published table, its convention, and the honest count beside it
"""
_BEAM, _TOKENS = 5, 20
_NOTES = (
    "Unit: 10^12 multiply-accumulates over 5,000 images, one image being a picture of 384 x 384 pixels seen as 144 x "
    "1536 features.",
    "Printed: Table VI of ExpansionNet v2 (IEEE Big Data 2023), which calls them FLOPs. Convention: one teacher-forced "
    "pass of the authors' code over captions of 12.44 tokens on average; without backbone, input projection, norms and "
    "element-wise work; a reduce layer only beside expansion. It was inferred from the numbers; the paper states none.",
    f"Beam {_BEAM}: what a caption of {_TOKENS} tokens really takes here, counted by fvcore, with input projection and "
    "norms; then with the backbone.",
)
_DIM, _LENGTH = 1536, 144
_BACKBONE = "swin_large_patch4_window12_384"
_UNIT = "GMAC: 10^9 multiply-accumulates, 1 MAC being 1 of fvcore's flops; training by torch's counter."


def flops(
    context: typer.Context,
    models: options.RowsOption = "all",
    preset: Annotated[
        str | None,
        typer.Option(
            help=f"Sizes of a preset of bench run, or {TABLE_VI}. Without it, each paper's.",
            autocompletion=options.complete_preset,
        ),
    ] = None,
    change: options.ChangeOption = None,
    caption_length: Annotated[
        int | None,
        typer.Option(
            min=1, max=MAX_TOKENS, help="Tokens a caption, the end token included.  [default: 20, or the preset's]"
        ),
    ] = None,
    beam: Annotated[
        int | None, typer.Option(min=1, max=MAX_BEAM, help="Width of the beam search.  [default: 5, or the preset's]")
    ] = None,
    position: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_TOKENS, help="Position of the one step, from 1.  [default: the caption's last]"),
    ] = None,
    regions: Annotated[
        int | None, typer.Option(min=1, max=MAX_REGIONS, help=f"Grid cells or regions an image.  [default: {_LENGTH}]")
    ] = None,
    visual_dim: Annotated[
        int | None, typer.Option(min=1, max=MAX_CHANNELS, help=f"Channels of the features.  [default: {_DIM}]")
    ] = None,
    vocab_size: options.VocabularySizeOption = 10_000,
    with_backbone: Annotated[bool, typer.Option("--with-backbone", help="Count the backbone too.")] = False,
    backbone: Annotated[str | None, typer.Option(help=f"The backbone: a timm model.  [default: {_BACKBONE}]")] = None,
    image_size: options.ImageSizeOption = None,
    output: options.TableFormatOption = "table",
    operators: Annotated[bool, typer.Option("--operators", help="List counted and uncounted operators.")] = False,
    hub: options.HubOption = None,
    plugin: options.PluginOption = None,
) -> None:
    """Count parameters and multiply-accumulates (GMAC) of one image, by part.

    Encoder: once an image. Step: one word of one row. Greedy and beam: a whole caption, encoder included. Teacher:
    one teacher-forced pass. Training: the same forward and backward.
    """
    with doing("Loading torch"):
        import torch

        from harness.config.model_patterns import expand_models, split_patterns
        from harness.data.hub import PREFIX
        from harness.measure.flops import count_flops
        from harness.measure.inputs import example_for
        from harness.measure.memory import create_within_memory

    torch.set_num_threads(1)  # a trace is thousands of tiny operators: handing them to threads only costs time
    if preset == TABLE_VI:
        unused = sorted(context.params.keys() - {"preset", "output"})
        why = f"not read by --preset {TABLE_VI}, a published table with its own sizes"
        options.refuse_typed(context, unused, why, "leave out all but --format")
        print_table_vi(output)
        return
    load_plugins(plugin)
    names, checkpoints = expand_models(split_patterns(models), is_stored=lambda name: name.startswith(PREFIX)), {}
    if hub or any(name.startswith(PREFIX) for name in names):
        from harness.benchmark.hub_model import find_checkpoints, hub_options

        checkpoints = find_checkpoints(names, hub_options(hub or (), ("prompt",)))
    if checkpoints and operators:
        raise BenchError("--operators is not for models of hf:", "leave it out")
    if not with_backbone and (backbone is not None or (image_size is not None and not checkpoints)):
        raise BenchError(
            f"{'--image-size' if backbone is None else '--backbone'} is about the backbone, which is not counted",
            "add --with-backbone, or leave it out",
        )
    settings, own = optional_preset(preset, change), [name for name in names if name not in checkpoints]
    if settings is not None and settings.recipe is not None and own and not any(map(settings.recipe.covers, own)):
        settings.check_model(own[0])  # no row could be counted
    tokens = caption_length or (settings.decoding.max_len if settings else 20)
    width = beam or (settings.decoding.beam_size if settings else 5)
    if position is not None and position > tokens:
        hint = f"give a longer --caption-length, or --position {tokens} at most"
        raise BenchError(f"--position {position} is behind the last of {tokens} tokens", hint)
    looked_through = None
    if with_backbone:
        from harness.measure.flops import count_backbone

        with doing(f"Counting {backbone or _BACKBONE}"):
            looked_through = count_backbone(backbone or _BACKBONE, image_size)
    dim = visual_dim or (looked_through.channels if looked_through else _DIM)
    length = regions or (looked_through.tokens if looked_through else _LENGTH)
    sizes, seen = {"vocab_size": vocab_size, "visual_dim": dim}, dict[str, None]()

    def counted(name: str) -> FlopCounts:
        given = settings.model_arguments(name, **sizes) if settings else {}
        model = create_within_memory(name, **sizes, **given)
        visual = example_for(model, length=length)
        pixels = visual.pixels
        seen[f"{length} x {dim} features" if pixels is None else f"{pixels.shape[-1]} pixels a side"] = None
        return count_flops(model, visual, caption_length=tokens, beam_size=width, step_position=position)

    def counted_checkpoint(name: str) -> CheckpointCount:
        from harness.benchmark.hub_model import count_checkpoint

        return count_checkpoint(checkpoints[name], image_size, max_len=tokens, beam_size=width, position=position)

    found: dict[str, FlopCounts | str] = {}
    of_hub: dict[str, CheckpointCount | str] = {}
    with progress_aside() as reporter, reporter.task("Counting", len(names)) as task:
        for name in own:
            found[name] = attempted(counted, name)
            task.advance(detail=name)
        for name in checkpoints:
            of_hub[name] = attempted(counted_checkpoint, name)
            task.advance(detail=name)
    shown = {name: checkpoints[name].row if name in checkpoints else name for name in names}
    if output == "csv":
        echo(as_csv(shown, found, of_hub, looked_through), nl=False)
    lead = "\n" if output == "markdown" else ""
    if output != "csv" and own:
        header = ["Model", "Params", "Encoder", "Step", "Greedy", f"Beam {width}", "Teacher", "Training"]
        header += ["With backbone"] * with_backbone
        rows = [model_row(name, count, looked_through) for name, count in found.items()]
        echo(format_table(header, rows, output), nl=False)
        conditions = f"One image of {' or '.join(seen) or 'nothing'}, {vocab_size:,} words, {tokens} tokens."
        there = {name: count for name, count in found.items() if not isinstance(count, str)}
        print_notes([_UNIT, conditions, *counting_notes(there, looked_through, operators)], output, lead)
    if output != "csv" and of_hub:
        from harness.benchmark.hub_model import PICTURE

        step = f"Step {max(position or tokens, 2)}"
        header = ["Model", "Params", "Vision", "Prefill", step, "Greedy", f"Beam {width}"]
        rows = [checkpoint_row(shown[name], count) for name, count in of_hub.items()]
        echo(format_table(header, rows, output), nl=False)
        prompts = dict.fromkeys(count.prompt for count in of_hub.values() if not isinstance(count, str))
        wide, high = (image_size, image_size) if image_size else PICTURE
        note = (
            f"Checkpoints: GMAC by torch's counter. One picture of {wide} x {high}, {tokens} tokens, "
            f"prompt {', '.join(prompts) or 'none'}. Vision: once. Prefill: all else up to the first token. Step: one "
            "token of one row, with keys and values kept. Norms and other element-wise work are not counted."
        )
        print_notes([note], output, lead)
    failures = {name: count for name, count in (found | of_hub).items() if isinstance(count, str)}
    for name, reason in failures.items():
        echo(f"failed: {shown[name]}: {reason}", err=True)
    if failures:
        raise typer.Exit(1)


_PARTS = ("encoder", "step", "greedy", "beam", "teacher_forced", "training")
_SEES_BACKBONE = {"grid", "regions", "regions+grid", "pooled"}


def attempted(count: Callable[[str], T], name: str) -> T | str:
    """What is counted of a model, or in words why nothing could be: the others are counted all the same."""
    try:
        with contain_exits():
            return count(name)
    except Exception as error:  # whatever a model raises
        place = place_in_plugin(error)
        at = "" if place is None else f" at {place}"
        kind = "" if isinstance(error, BenchError | ZooError) else f"{type(error).__name__}{at}: "
        return f"{kind}{' '.join(str(error).split())}"


def with_backbone_macs(name: str, count: FlopCounts, backbone: BackboneCount) -> int:
    """Multiply-accumulates of a beam-searched caption with the backbone's, where the model looks through it."""
    return count.beam.macs + (backbone.count.macs if model_card(name).visual in _SEES_BACKBONE else 0)


def model_row(name: str, count: FlopCounts | str, backbone: BackboneCount | None) -> list[str]:
    if isinstance(count, str):
        return [name, "failed", *["-"] * (len(_PARTS) + (backbone is not None))]
    macs = [getattr(count, part).macs for part in _PARTS]
    macs += [] if backbone is None else [with_backbone_macs(name, count, backbone)]
    return [name, f"{count.parameters / 1e6:.2f} M", *map(gmac, macs)]


def checkpoint_row(name: str, count: CheckpointCount | str) -> list[str]:
    """One checkpoint; "-" where it has no module of its own that sees."""
    if isinstance(count, str):
        return [name, "failed", *["-"] * 5]
    macs = (getattr(count.counts, part) for part in ("vision", "prefill", "step", "greedy", "beam"))
    return [name, f"{count.parameters / 1e6:.2f} M", *("-" if number is None else gmac(number) for number in macs)]


def gmac(macs: int) -> str:
    """Multiply-accumulates in GMAC."""
    return f"{macs / 1e9:.3f}" if macs < 100e9 else f"{macs / 1e9:.1f}"


def counting_notes(counts: Mapping[str, FlopCounts], backbone: BackboneCount | None, operators: bool) -> list[str]:
    """What is not counted; with `operators` by model, of a whole caption by beam search."""
    notes = []
    if backbone is not None:
        notes.append(
            f"Backbone {backbone.name} at {backbone.image_size} x {backbone.image_size}: "
            f"{backbone.count.macs / 1e9:.2f} GMAC, {backbone.parameters / 1e6:.1f} M parameters."
        )
    if not operators:
        most = max((count.beam.uncounted_share for count in counts.values()), default=0.0)
        notes.append(
            f"Not counted: element-wise work, at most about {100 * most:.1f} % of all operations; --operators lists it."
        )
        return notes
    for name, count in counts.items():
        part = count.beam
        counted = [f"{operator} {gmac(macs)}" for operator, macs in part.by_operator.items()]
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


def as_csv(
    shown: Mapping[str, str],
    found: Mapping[str, FlopCounts | str],
    of_hub: Mapping[str, CheckpointCount | str],
    backbone: BackboneCount | None,
) -> str:
    """Exact multiply-accumulates, one line a model; with checkpoints of `hf:`, one column more at the end."""
    header = ["model", "parameters", *(f"{part}_mac" for part in _PARTS), "beam_and_backbone_mac"]
    header += ["uncounted", "uncounted_share", "failure", *["start_mac"] * bool(of_hub)]
    rows = []
    for name, model in shown.items():
        own, other, row = found.get(name, ""), of_hub.get(name, ""), dict[str, Any](model=model)
        if not isinstance(own, str):
            row |= {f"{part}_mac": getattr(own, part).macs for part in (*_PARTS, "start")}
            if backbone is not None:
                row["beam_and_backbone_mac"] = with_backbone_macs(name, own, backbone)
            row["parameters"], row["uncounted_share"] = own.parameters, f"{own.beam.uncounted_share:.6f}"
            row["uncounted"] = " ".join(f"{operator}:{times}" for operator, times in own.beam.uncounted.items())
        elif not isinstance(other, str):
            counts = other.counts
            row |= {"parameters": other.parameters, "encoder_mac": counts.vision, "start_mac": counts.prefill}
            row |= {f"{part}_mac": getattr(counts, part) for part in ("step", "greedy", "beam")}
        else:
            row["failure"] = own or other
        rows.append(["" if row.get(column) is None else str(row[column]) for column in header])
    return format_table(header, rows, "csv")


# The paper does not state the counting convention of ExpansionNet v2's Table VI (IEEE Big Data 2023). It was found by
# fitting: of all conventions tried, only this one gives the 12 printed numbers within their rounding. It counts one
# teacher-forced pass of the authors' code per image, without the backbone, the projection of its features, norms and
# other element-wise work, but with the vocabulary, and a reduce layer where the stack uses expansion. The mean caption
# length is 12.44 tokens: COCO's 10.4 words and two special tokens, presumably. The authors' code builds every expanded
# vector, which the zoo's models avoid; hence formulas instead of traces.
IMAGES = 5000
REGIONS, CHANNELS, VOCABULARY = 144, 1536, 10_000
MEAN_LENGTH = 12.44
MEAN_SQUARE = MEAN_LENGTH**2 + 10.0  # of the captions' lengths: their variance, about 10, belongs to the fit

ROWS = (
    "transformer_base",
    *(f"expansionnet_v2/{name}" for name in ("static-16", "static-32", "static-64")),
    *(f"expansionnet_v2/{name}" for name in ("dynamic-4", "dynamic-8", "dynamic-16", "static-64-dynamic-16")),
    *(f"expansionnet_v2/static-{lengths}-dynamic-16" for lengths in ("128x5", "256x5", "512x5")),
    "expansionnet_v2",
)


def teacher_forced_macs(name: str, length: float = MEAN_LENGTH, square: float = MEAN_SQUARE) -> float:
    """Multiply-accumulates of one image in the table's convention, for one of `ROWS`.

    Of captions of a mean `length` (tokens, begin or end token included) and mean `square` of it. Attention and dynamic
    expansion relate every position to every other.
    """
    arguments = model_card(name).arguments
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


def print_table_vi(output: TableFormat) -> None:
    """Print all twelve rows; counting takes about a minute, so that its progress is shown beside it."""
    from harness.measure.flops import count_backbone, count_caption
    from harness.measure.inputs import example_visual
    from results.published.scores import published_for
    from zoo import create_model

    rows = []
    with progress_aside() as reporter, reporter.task("counting", len(ROWS) + 1) as task:
        backbone = count_backbone(_BACKBONE).count.macs
        task.reach(1, _BACKBONE)
        for number, name in enumerate(ROWS, 2):
            [printed] = published_for(name, metric="GMAC-table")
            model = create_model(name, vocab_size=VOCABULARY, visual_dim=CHANNELS)
            caption = count_caption(model, example_visual(model.visual, length=REGIONS), _TOKENS, _BEAM).macs
            each = [macs * IMAGES / 1e12 for macs in (teacher_forced_macs(name), caption, caption + backbone)]
            counted = [f"{each[0]:.3f}", f"{each[1]:.2f}", f"{each[2]:.1f}"]
            rows.append([name.removeprefix("expansionnet_v2/"), f"{printed.value:.2f}", *counted])
            task.reach(number, name)
    header = ["Row", "Printed", "Convention", f"Beam {_BEAM}", f"Beam {_BEAM} + Swin-L"]
    echo(format_table(header, rows, output), nl=False)
    print_notes(_NOTES, output, "\n")
