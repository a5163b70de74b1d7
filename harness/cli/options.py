"""Options that several commands share, and all of `bench run`, which others take with the same meaning."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

from harness.cli.output import TableFormat
from harness.config.evaluation import TokenizerName, parse_language
from harness.config.limits import (
    MAX_COUNT,
    MAX_HOURS,
    MAX_MEMORY_GB,
    MAX_PROCESSES,
    MAX_SEED,
    MAX_SEEDS,
    MAX_SIDE,
    MAX_WORDS,
)
from harness.utils.errors import BenchError


def durable(value: str | None) -> str | None:
    """The value of `--db`; BenchError if its results would be lost with the process."""
    if value is None or not ("memory" in value or value.startswith("sqlite")):
        return value

    from results.store.engine import is_in_memory, resolve_url

    if is_in_memory(resolve_url(value)):
        raise BenchError(
            f"--db {value} is a database in memory: its results would be lost at the end of the command",
            "name a file, as --db results.sqlite, or leave the option out for the workspace's",
        )
    return value


def refuse_typed(context: typer.Context, parameters: Iterable[str], why: str, hint: str) -> None:
    """BenchError if any of these parameters was typed, as it would have no effect; it says `why` behind them."""
    options = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    sources = {name: context.get_parameter_source(name) for name in parameters}
    typed = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if typed:
        raise BenchError(f"{', '.join(options[name] for name in typed)}: {why}", hint)


def typed_words(context: typer.Context, parameters: Iterable[str]) -> str:
    """Those of these parameters that were typed, as words of a command line."""
    words = []
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in parameters and source is not None and source.name == "COMMANDLINE":
            value = context.params[parameter.name]
            words += [parameter.opts[0]] if value is True else [parameter.opts[0], str(value)]
    return shlex.join(words)


def complete_models(incomplete: str) -> list[str]:
    """The list of models so far, with each name, family or pattern that its last word may become."""
    from zoo.registry import list_models

    before, comma, word = incomplete.rpartition(",")
    names = list_models()
    families = sorted({f"{name.partition('/')[0]}/*" for name in names if "/" in name})
    used = {name.strip() for name in before.split(",")}
    # Rows that are not models stand here as in `harness.benchmark.baselines.REFERENCE_ROWS`, which imports torch.
    candidates = ("all", "human", "majority", "retrieval", *names, *families)
    return [f"{before}{comma}{name}" for name in candidates if name.startswith(word) and name not in used]


def complete_preset(incomplete: str) -> list[str]:
    """The presets that begin so."""
    from harness.config.load import PRESETS

    return [name for name in PRESETS if name.startswith(incomplete)]


_FEATURES = "Features"
_TRAINING = "Training"
_WHERE = "Where it runs"
_METRICS = "More metrics"
_SYSTEMS = "Systems and checkpoints"
"""Panels of the help."""

# What is run, and where it goes.
WorkspaceOption = Annotated[
    Path, typer.Option("--workspace", "-w", metavar="PATH", help="Folder of results, caches and reports.")
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--db",
        callback=durable,
        envvar="BENCH_DB",
        metavar="FILE",
        help="Results elsewhere: a SQLite file or SQLAlchemy URL.",
    ),
]
PluginOption = Annotated[
    list[str] | None, typer.Option("--plugin", metavar="MODULE", help="Python module or file that registers models.")
]
ModelsOption = Annotated[
    str,
    typer.Option(
        metavar="NAMES", help="Names or globs, separated by commas, or 'all'.", autocompletion=complete_models
    ),
]
RowsOption = Annotated[
    str,
    typer.Option(
        "--models",
        metavar="NAMES",
        help="Names, globs, hf:ORG/NAME; of runs also captions:FILE, ensemble:MODEL:SEEDS; with commas.",
        autocompletion=complete_models,
    ),
]
HubOption = Annotated[
    list[str] | None,
    typer.Option(
        "--hub",
        metavar="KEY=VALUE",
        help="How hf: models caption: prompt=TEXT before it; of runs also clean=RULES, dtype, attention, batch.",
        rich_help_panel=_SYSTEMS,
    ),
]
ClipOption = Annotated[
    str | None,
    typer.Option(
        "--clip",
        metavar="MODEL",
        help="For CLIPScore: a CLIP model, by FOLDER, ORG/NAME or ORG/NAME@REVISION.",
        rich_help_panel=_METRICS,
    ),
]
BertOption = Annotated[
    str | None,
    typer.Option(
        "--bert",
        metavar="MODEL",
        help="For BERTScore: a BERT model, by FOLDER, ORG/NAME or ORG/NAME@REVISION.",
        rich_help_panel=_METRICS,
    ),
]
InstancesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--instances",
        metavar="FILE",
        help="For CHAIR: COCO's instances_*.json; may be repeated.",
        rich_help_panel=_METRICS,
    ),
]
ChangeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change the preset, as size.d_model=128.",
        rich_help_panel=_TRAINING,
    ),
]
TokenizerOption = Annotated[
    TokenizerName,
    typer.Option(
        "--tokenizer",
        help="Words of captions: PTB's in Python, or the Java original, which gives the same; of languages without "
        "spaces zh, ja, vi, or characters.",
    ),
]
LanguageOption = Annotated[
    str | None,
    typer.Option(
        "--language",
        metavar="CODE",
        callback=lambda code: None if code is None else parse_language(code),
        help="METEOR's language, as de; it is null in those that METEOR has not.",
        show_default="en, or the tokenizer's",
    ),
]
RankUnconvergedOption = Annotated[
    bool, typer.Option("--rank-unconverged", help="Also rank models that had not converged.")
]
MarginOption = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=1000.0,
        help="Points below which two rows are the same.",
        show_default="2 % of human's score, or of the best row's",
    ),
]
SameMachineOption = Annotated[
    bool, typer.Option("--same-machine", help="Leave rows out that another processor or other versions computed.")
]
RankingMetricOption = Annotated[str, typer.Option("--metric", help="Sort and rank by this metric.")]
DataOption = Annotated[
    str, typer.Option("--data", metavar="DATA", help="'scenes', 'scenes-6k', a Karpathy folder or its JSON file.")
]
DeviceOption = Annotated[
    str, typer.Option("--device", metavar="NAME", help="auto, cpu, cuda or cuda:N.", rich_help_panel=_WHERE)
]

# Images and the features that are extracted from them.
DataArgument = Annotated[str, typer.Argument(metavar="DATA", help="'scenes', a Karpathy folder, or its JSON file.")]
ImagesOption = Annotated[
    Path | None, typer.Option("--images", metavar="FOLDER", help="The images, if they are not beside the JSON.")
]
BackboneWeightsOption = Annotated[
    Path | None,
    typer.Option(
        "--backbone-weights", metavar="FILE", help="Its weights: .safetensors or .pth.", rich_help_panel=_FEATURES
    ),
]
BackboneSettingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--backbone-option",
        metavar="KEY=VALUE",
        help="level=4 (the map of stride 16), precision=bf16, or for timm's create_model.",
        rich_help_panel=_FEATURES,
    ),
]
GraphsOption = Annotated[
    str | None,
    typer.Option(
        "--graphs",
        metavar="GRAPHS",
        help="Scene graphs: scenes, scenes:noise=0.3, or a JSON file.",
        rich_help_panel=_FEATURES,
    ),
]
ImageSizeOption = Annotated[
    int | None,
    typer.Option(
        "--image-size", min=1, max=MAX_SIDE, help="Pixels a side, if not the backbone's.", rich_help_panel=_FEATURES
    ),
]
NormalisationOption = Annotated[
    str | None,
    typer.Option("--normalisation", metavar="NAME", help="imagenet, half or clip.", rich_help_panel=_FEATURES),
]
RegionCountOption = Annotated[
    str,
    typer.Option(
        "--region-count", metavar="COUNT", help="all, fixed:36, first:50 or adaptive:10-100.", rich_help_panel=_FEATURES
    ),
]
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit",
        min=1,
        max=MAX_COUNT,
        metavar="N",
        help="Score the first N images of a split alone, for a quick try; such scores compare with no other.",
    ),
]
SkipBadImagesOption = Annotated[
    bool, typer.Option("--skip-bad-images", help="Leave unusable images out, and record which.")
]

# Sizes that costs are counted or measured at, and how the table is written.
VocabularySizeOption = Annotated[int, typer.Option(min=5, max=MAX_WORDS, help="Words, special tokens included.")]
TableFormatOption = Annotated[TableFormat, typer.Option("--format", help="How to write the table.")]


PretrainedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--pretrained",
        metavar="MODEL=WHERE",
        help="A pretrained model's weights: a folder or a repository of the hub.",
        rich_help_panel=_SYSTEMS,
    ),
]
CardsOption = Annotated[
    Path | None,
    typer.Option(
        "--cards",
        metavar="FILE",
        help="Of captions:FILE: YAML of what is known of the systems.",
        rich_help_panel=_SYSTEMS,
    ),
]
AllowSubsetOption = Annotated[
    bool,
    typer.Option(
        "--allow-subset",
        help="Score a captions:FILE that lacks images, in a table of its own.",
        rich_help_panel=_SYSTEMS,
    ),
]
BackboneOption = Annotated[
    str | None,
    typer.Option(
        "--backbone", metavar="NAME", help="'filterbank', 'scenesnet' or a timm model.", rich_help_panel=_FEATURES
    ),
]
RegionsOption = Annotated[
    str | None,
    typer.Option(
        "--regions",
        metavar="REGIONS",
        help="Regions: boxes, windows:4, or a JSON, TSV, HDF5 file or folder.",
        rich_help_panel=_FEATURES,
    ),
]
PresetOption = Annotated[
    str,
    typer.Option(
        "--preset",
        metavar="NAME",
        help="Sizes, schedule and decoding of all models.",
        autocompletion=complete_preset,
        rich_help_panel=_TRAINING,
    ),
]
SeedsOption = Annotated[
    int | None,
    typer.Option(
        "--seeds",
        min=1,
        max=MAX_SEEDS,
        help="Trainings of each model, by other random numbers; a rank needs 2, better 3.",
        show_default="the preset's, 3 or 1",
        rich_help_panel=_TRAINING,
    ),
]
FirstSeedOption = Annotated[
    int,
    typer.Option(
        "--first-seed",
        min=0,
        max=MAX_SEED,
        help="The first of the seeds, for a repetition with others.",
        rich_help_panel=_TRAINING,
    ),
]
BudgetsOption = Annotated[
    str,
    typer.Option(
        "--budgets",
        metavar="LIST",
        help="Multiples of the preset's epochs to train for, as 1,2,4.",
        rich_help_panel=_TRAINING,
    ),
]
TunedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tuned",
        metavar="WHERE",
        help="With values of bench tune: 'workspace', or files of its --export.",
        rich_help_panel=_TRAINING,
    ),
]
PrecisionOption = Annotated[
    Literal["auto", "fp32", "bf16"], typer.Option("--precision", help="Of computation.", rich_help_panel=_TRAINING)
]
TrackerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="TRACKER",
        help="Also show runs in tensorboard, wandb or mlflow; may be repeated.",
        rich_help_panel=_WHERE,
    ),
]
DevicesOption = Annotated[
    int | None,
    typer.Option(
        "--devices",
        min=1,
        max=MAX_PROCESSES,
        help="Devices that train one run together.",
        show_default="1",
        rich_help_panel=_WHERE,
    ),
]
JobsOption = Annotated[
    str,
    typer.Option(
        "--jobs",
        envvar="BENCH_JOBS",
        metavar="N",
        help="Runs at once; auto: up to 4 on CPU cores, 1 on a GPU.",
        rich_help_panel=_WHERE,
    ),
]
ExecutorOption = Annotated[
    str,
    typer.Option(
        "--executor",
        metavar="WHERE",
        help="This machine, or a cluster: here, ray, ray:HOST:PORT or slurm.",
        rich_help_panel=_WHERE,
    ),
]
CpusOption = Annotated[
    float | None,
    typer.Option(
        "--cpus-per-run",
        min=0.01,
        max=MAX_PROCESSES,
        help="On a cluster: cores of a run.",
        show_default="1",
        rich_help_panel=_WHERE,
    ),
]
GpusOption = Annotated[
    float | None,
    typer.Option(
        "--gpus-per-run",
        min=0,
        max=MAX_PROCESSES,
        help="On a cluster: GPUs of a run, such as 0.5.",
        show_default="1 or 0",
        rich_help_panel=_WHERE,
    ),
]
MemoryOption = Annotated[
    float | None,
    typer.Option(
        "--memory-per-run",
        metavar="GB",
        min=0.1,
        max=MAX_MEMORY_GB,
        help="On a cluster: memory of a run.",
        show_default="estimated",
        rich_help_panel=_WHERE,
    ),
]
HoursOption = Annotated[
    float | None,
    typer.Option(
        "--hours-per-run",
        min=0.1,
        max=MAX_HOURS,
        help="On Slurm: the limit of a run's time.",
        show_default="24",
        rich_help_panel=_WHERE,
    ),
]
MoreMetricsOption = Annotated[
    bool,
    typer.Option(
        "--more-metrics", help="Also diversity and hallucinated objects of all captions.", rich_help_panel=_METRICS
    ),
]
ReuseOption = Annotated[
    Literal["same", "any", "none"],
    typer.Option("--reuse", help="Finished runs that count: of the same code, any, or none."),
]
ExperimentArgument = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="An experiment in YAML; options go before what it says.")
]
SaveOption = Annotated[
    Path | None,
    typer.Option("--save", metavar="FILE", help="Write the experiment to this file, and run nothing."),
]
