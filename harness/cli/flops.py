"""`bench flops`: the parameters and multiply-accumulates of each architecture, without training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
    from harness.benchmark.hub_model import CheckpointCount, HubModel
    from harness.config.preset import Preset
    from harness.measure.flops import BackboneCount, FlopCounts

T = TypeVar("T")

EXAMPLES = r"""
# every model at its paper's size, on 144 x 1536 features and 10,000 words
bench flops
# which operators the multiply-accumulates come from
bench flops --models 'expansionnet*' --operators
bench flops --models m2,updown --caption-length 16 --beam 3 --regions 36 \
    --format latex
# at the sizes of a preset of `bench run`
bench flops --preset quick --set size.d_model=256
# what the features cost on top
bench flops --models expansionnet_v2 --with-backbone
# a checkpoint of the hub
bench flops --models hf:FOLDER,git --hub prompt='a photo of'
"""
_DIM, _LENGTH = 1536, 144
_BACKBONE = "swin_large_patch4_window12_384"
_UNIT = "GMAC: 10^9 multiply-accumulates, 1 MAC being 1 of fvcore's flops; training by torch's counter."


def flops(
    models: options.RowsOption = "all",
    preset: Annotated[
        str | None,
        typer.Option(
            help="Sizes of a preset of bench run. Without it, each paper's.",
            autocompletion=options.complete_preset,
        ),
    ] = None,
    change: options.ChangeOption = None,
    caption_length: Annotated[
        int | None,
        typer.Option(
            min=1, max=MAX_TOKENS, help="Tokens a caption, the end token included.", show_default="20, or the preset's"
        ),
    ] = None,
    beam: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_BEAM, help="Width of the beam search.", show_default="5, or the preset's"),
    ] = None,
    position: Annotated[
        int | None,
        typer.Option(
            min=1, max=MAX_TOKENS, help="Position of the one step, from 1.", show_default="the caption's last"
        ),
    ] = None,
    regions: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_REGIONS, help="Grid cells or regions an image.", show_default=f"{_LENGTH}"),
    ] = None,
    visual_dim: Annotated[
        int | None, typer.Option(min=1, max=MAX_CHANNELS, help="Channels of the features.", show_default=f"{_DIM}")
    ] = None,
    vocab_size: options.VocabularySizeOption = 10_000,
    with_backbone: Annotated[bool, typer.Option("--with-backbone", help="Count the backbone too.")] = False,
    backbone: Annotated[
        str | None, typer.Option(help="The backbone: a timm model.", show_default=f"{_BACKBONE}")
    ] = None,
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
        from harness.measure.flops import count_backbone

    torch.set_num_threads(1)  # a trace runs thousands of tiny operators, for which threads are slower
    load_plugins(plugin)
    names = expand_models(split_patterns(models), is_stored=lambda name: name.startswith(PREFIX))
    checkpoints = _checkpoints(names, hub)
    registered = [name for name in names if name not in checkpoints]
    if operators and not registered:
        raise BenchError("--operators is not for models of hf:", "leave it out")
    settings = optional_preset(preset, change)
    recipe = None if settings is None else settings.recipe
    if settings is not None and recipe is not None and registered and not any(map(recipe.covers, registered)):
        from harness.config.load import check_recipe

        check_recipe(settings, registered[0])  # no row could be counted
    tokens = caption_length or (settings.decoding.max_len if settings else 20)
    width = beam or (settings.decoding.beam_size if settings else 5)
    if position is not None and position > tokens:
        hint = f"give a longer --caption-length, or --position {tokens} at most"
        raise BenchError(f"--position {position} is behind the last of {tokens} tokens", hint)
    backbone_count = None
    if with_backbone or backbone is not None or (image_size is not None and registered):
        with doing(f"Counting {backbone or _BACKBONE}"):
            backbone_count = count_backbone(backbone or _BACKBONE, image_size)
    sizes = Sizes(
        vocab_size=vocab_size,
        visual_dim=visual_dim or (backbone_count.channels if backbone_count else _DIM),
        length=regions or (backbone_count.tokens if backbone_count else _LENGTH),
        tokens=tokens,
        beam_size=width,
        position=position,
        image_size=image_size,
    )
    inputs: dict[str, None] = {}
    counts: dict[str, FlopCounts | str] = {}
    hub_counts: dict[str, CheckpointCount | str] = {}
    with progress_aside() as reporter, reporter.task("Counting", len(names)) as task:
        for name in registered:
            counts[name] = count_or_reason(partial(_count_model, name, settings, sizes, inputs))
            task.advance(detail=name)
        for name, checkpoint in checkpoints.items():
            hub_counts[name] = count_or_reason(partial(_count_checkpoint, checkpoint, sizes))
            task.advance(detail=name)
    names_shown = {name: checkpoints[name].row if name in checkpoints else name for name in names}
    if output == "csv":
        echo(as_csv(names_shown, counts, hub_counts, backbone_count), nl=False)
    else:
        if registered:
            _print_models(counts, inputs, sizes, backbone_count, operators=operators, output=output)
        if hub_counts:
            _print_checkpoints({names_shown[name]: count for name, count in hub_counts.items()}, sizes, output)
    failures = {name: count for name, count in (counts | hub_counts).items() if isinstance(count, str)}
    for name, reason in failures.items():
        echo(f"failed: {names_shown[name]}: {reason}", err=True)
    if failures:
        raise typer.Exit(1)


@dataclass(frozen=True)
class Sizes:
    """The sizes of inputs and captions to count with; `position` is that of the single step, None for the last."""

    vocab_size: int
    visual_dim: int
    length: int
    tokens: int
    beam_size: int
    position: int | None
    image_size: int | None


def _checkpoints(names: Sequence[str], hub: Sequence[str] | None) -> dict[str, HubModel]:
    """The checkpoints `hf:...` among the models."""
    from harness.data.hub import PREFIX

    if not hub and not any(name.startswith(PREFIX) for name in names):
        return {}
    from harness.benchmark.hub_model import find_checkpoints, hub_options

    return find_checkpoints(names, hub_options(hub or (), ("prompt",)))


def _count_model(name: str, settings: Preset | None, sizes: Sizes, inputs: dict[str, None]) -> FlopCounts:
    """Count a model of the zoo; a description of its input is added to `inputs`."""
    from harness.measure.flops import count_flops
    from harness.measure.inputs import example_for
    from harness.measure.memory import create_within_memory

    words = {"vocab_size": sizes.vocab_size, "visual_dim": sizes.visual_dim}
    arguments = settings.model_arguments(name, **words) if settings else {}
    model = create_within_memory(name, **words, **arguments)
    visual = example_for(model, length=sizes.length)
    features = f"{sizes.length} x {sizes.visual_dim} features"
    inputs[features if visual.pixels is None else f"{visual.pixels.shape[-1]} pixels a side"] = None
    return count_flops(
        model, visual, caption_length=sizes.tokens, beam_size=sizes.beam_size, step_position=sizes.position
    )


def _count_checkpoint(checkpoint: HubModel, sizes: Sizes) -> CheckpointCount:
    from harness.benchmark.hub_model import count_checkpoint

    return count_checkpoint(
        checkpoint, sizes.image_size, max_len=sizes.tokens, beam_size=sizes.beam_size, position=sizes.position
    )


def _print_models(
    counts: Mapping[str, FlopCounts | str],
    inputs: Iterable[str],
    sizes: Sizes,
    backbone: BackboneCount | None,
    *,
    operators: bool,
    output: TableFormat,
) -> None:
    header = ["Model", "Params", "Encoder", "Step", "Greedy", f"Beam {sizes.beam_size}", "Teacher", "Training"]
    if backbone is not None:
        header.append("With backbone")
    rows = [model_row(name, count, backbone) for name, count in counts.items()]
    echo(format_table(header, rows, output), nl=False)
    counted = {name: count for name, count in counts.items() if not isinstance(count, str)}
    conditions = f"One image of {' or '.join(inputs) or 'nothing'}, {sizes.vocab_size:,} words, {sizes.tokens} tokens."
    lead = "\n" if output == "markdown" else ""
    print_notes([_UNIT, conditions, *counting_notes(counted, backbone, operators)], output, lead)


def _print_checkpoints(counts: Mapping[str, CheckpointCount | str], sizes: Sizes, output: TableFormat) -> None:
    from harness.benchmark.hub_model import PICTURE

    step = f"Step {max(sizes.position or sizes.tokens, 2)}"
    header = ["Model", "Params", "Vision", "Prefill", step, "Greedy", f"Beam {sizes.beam_size}"]
    echo(format_table(header, [checkpoint_row(name, count) for name, count in counts.items()], output), nl=False)
    prompts = dict.fromkeys(count.prompt for count in counts.values() if not isinstance(count, str))
    width, height = (sizes.image_size, sizes.image_size) if sizes.image_size else PICTURE
    note = (
        f"Checkpoints: GMAC by torch's counter. One picture of {width} x {height}, {sizes.tokens} tokens, "
        f"prompt {', '.join(prompts) or 'none'}. Vision: once. Prefill: all else up to the first token. Step: one "
        "token of one row, with keys and values kept. Norms and other element-wise work are not counted."
    )
    print_notes([note], output, "\n" if output == "markdown" else "")


_PARTS = ("encoder", "step", "greedy", "beam", "teacher_forced", "training")
_READS_BACKBONE = {"grid", "regions", "regions+grid", "pooled"}


def count_or_reason(count: Callable[[], T]) -> T | str:
    """Count a model; if that fails, the reason as text, so that the other models are still counted."""
    try:
        with contain_exits():
            return count()
    except Exception as error:  # a model may raise anything
        message = " ".join(str(error).split())
        if isinstance(error, BenchError | ZooError):
            return message
        location = place_in_plugin(error)
        suffix = "" if location is None else f" at {location}"
        return f"{type(error).__name__}{suffix}: {message}"


def with_backbone_macs(name: str, count: FlopCounts, backbone: BackboneCount) -> int:
    """Multiply-accumulates of a beam-searched caption, plus the backbone's if the model reads its features."""
    macs = count.beam.macs
    if model_card(name).visual in _READS_BACKBONE:
        macs += backbone.count.macs
    return macs


def model_row(name: str, count: FlopCounts | str, backbone: BackboneCount | None) -> list[str]:
    if isinstance(count, str):
        columns = len(_PARTS) if backbone is None else len(_PARTS) + 1
        return [name, "failed", *["-"] * columns]
    macs = [getattr(count, part).macs for part in _PARTS]
    if backbone is not None:
        macs.append(with_backbone_macs(name, count, backbone))
    return [name, f"{count.parameters / 1e6:.2f} M", *map(gmac, macs)]


def checkpoint_row(name: str, count: CheckpointCount | str) -> list[str]:
    """One checkpoint; "-" for vision if it has no separate vision module."""
    if isinstance(count, str):
        return [name, "failed", *["-"] * 5]
    macs = (getattr(count.counts, part) for part in ("vision", "prefill", "step", "greedy", "beam"))
    cells = ["-" if macs_of_part is None else gmac(macs_of_part) for macs_of_part in macs]
    return [name, f"{count.parameters / 1e6:.2f} M", *cells]


def gmac(macs: int) -> str:
    """Multiply-accumulates in GMAC."""
    return f"{macs / 1e9:.3f}" if macs < 100e9 else f"{macs / 1e9:.1f}"


def counting_notes(counts: Mapping[str, FlopCounts], backbone: BackboneCount | None, operators: bool) -> list[str]:
    """Notes on what is not counted; with `operators`, by model, for a caption by beam search."""
    notes = []
    if backbone is not None:
        notes.append(
            f"Backbone {backbone.name} at {backbone.image_size} x {backbone.image_size}: "
            f"{backbone.count.macs / 1e9:.2f} GMAC, {backbone.parameters / 1e6:.1f} M parameters."
        )
    if not operators:
        largest_share = max((count.beam.uncounted_share for count in counts.values()), default=0.0)
        notes.append(
            f"Not counted: element-wise work, at most about {100 * largest_share:.1f} % of all operations; "
            "--operators lists it."
        )
        return notes
    for name, count in counts.items():
        part = count.beam
        counted = [f"{operator} {gmac(macs)}" for operator, macs in part.by_operator.items()]
        total = sum(part.element_wise.values()) + part.macs
        missing = []
        for operator, times in part.uncounted.items():
            share = ""
            if operator in part.element_wise:
                share = f" ({100 * part.element_wise[operator] / total:.2f} %)"
            missing.append(f"{operator} x{times}{share}")
        notes += [
            f"{name}, a caption by beam search. GMAC: {', '.join(counted)}.",
            f"Not counted, about {100 * part.uncounted_share:.2f} % of all operations: {', '.join(missing) or 'none'}.",
        ]
    return notes


def as_csv(
    names_shown: Mapping[str, str],
    model_counts: Mapping[str, FlopCounts | str],
    hub_counts: Mapping[str, CheckpointCount | str],
    backbone: BackboneCount | None,
) -> str:
    """Exact multiply-accumulates, one line a model; with checkpoints `hf:...`, one more column at the end."""
    header = ["model", "parameters", *(f"{part}_mac" for part in _PARTS), "beam_and_backbone_mac"]
    header += ["uncounted", "uncounted_share", "failure"]
    if hub_counts:
        header.append("start_mac")
    rows = []
    for name, model in names_shown.items():
        row: dict[str, Any] = {"model": model}
        count = model_counts.get(name, "")
        hub_count = hub_counts.get(name, "")
        if not isinstance(count, str):
            row |= {f"{part}_mac": getattr(count, part).macs for part in (*_PARTS, "start")}
            if backbone is not None:
                row["beam_and_backbone_mac"] = with_backbone_macs(name, count, backbone)
            row["parameters"] = count.parameters
            row["uncounted_share"] = f"{count.beam.uncounted_share:.6f}"
            row["uncounted"] = " ".join(f"{operator}:{times}" for operator, times in count.beam.uncounted.items())
        elif not isinstance(hub_count, str):
            counts = hub_count.counts
            row |= {"parameters": hub_count.parameters, "encoder_mac": counts.vision, "start_mac": counts.prefill}
            row |= {f"{part}_mac": getattr(counts, part) for part in ("step", "greedy", "beam")}
        else:
            row["failure"] = count or hub_count
        rows.append(["" if row.get(column) is None else str(row[column]) for column in header])
    return format_table(header, rows, "csv")
