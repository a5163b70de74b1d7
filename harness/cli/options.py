"""Options that several commands share, and all of `bench run`, which others take with the same meaning."""

import copy
import functools
import inspect
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Concatenate, Literal, ParamSpec, get_args, get_type_hints

import typer

from harness.cli.output import TableFormat
from harness.config.limits import MAX_HOURS, MAX_MEMORY_GB, MAX_PROCESSES, MAX_SEED, MAX_SEEDS, MAX_SIDE, MAX_WORDS
from harness.utils.errors import BenchError
from harness.utils.workspace import DEFAULT

DEFAULT_PRESET = "quick"
P = ParamSpec("P")


def durable(value: str | None) -> str | None:
    """The value of `--db`; BenchError where its results would be lost with the process."""
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
    """BenchError where any of these parameters was typed, as it would have no effect; it says `why` behind them."""
    options = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    sources = {name: context.get_parameter_source(name) for name in parameters}
    typed = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if typed:
        raise BenchError(f"{', '.join(options[name] for name in typed)}: {why}", hint)


def complete_models(incomplete: str) -> list[str]:
    """The list of models so far, with each name, family or pattern that its last word may become."""
    from zoo.registry import list_models

    before, comma, word = incomplete.rpartition(",")
    names = list_models()
    families = sorted({f"{name.partition('/')[0]}/*" for name in names if "/" in name})
    taken = {name.strip() for name in before.split(",")}
    # Rows that are not models stand here as in `harness.benchmark.baselines.REFERENCE_ROWS`, which imports torch.
    known = ("all", "human", "majority", "retrieval", *names, *families)
    return [f"{before}{comma}{name}" for name in known if name.startswith(word) and name not in taken]


def complete_preset(incomplete: str) -> list[str]:
    """The presets that begin so."""
    from harness.config.load import PRESETS

    return [name for name in PRESETS if name.startswith(incomplete)]


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
        help="How hf: models caption: prompt=TEXT before it; of runs also clean=RULES for cuts, dtype, attention.",
    ),
]
ClipOption = Annotated[
    str | None,
    typer.Option(metavar="MODEL", help="For CLIPScore: a CLIP model, by FOLDER, ORG/NAME or ORG/NAME@REVISION."),
]
BertOption = Annotated[
    str | None,
    typer.Option(metavar="MODEL", help="For BERTScore: a BERT model, by FOLDER, ORG/NAME or ORG/NAME@REVISION."),
]
InstancesOption = Annotated[
    list[Path] | None, typer.Option(metavar="FILE", help="For CHAIR: COCO's instances_*.json; may be repeated.")
]
ChangeOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change the preset, as size.d_model=128.")
]
PlaceUnfinishedOption = Annotated[
    bool, typer.Option("--place-unfinished", help="Give places to models that were still learning, too.")
]
MarginOption = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=1000.0,
        help="Points below which two rows are the same.",
        show_default="2 % of human's, or the best row's; of claims, 3 %",
    ),
]
SameMachineOption = Annotated[
    bool, typer.Option("--same-machine", help="Leave rows out that another processor or other versions computed.")
]
RankingMetricOption = Annotated[str, typer.Option("--metric", help="Sort and place by this metric.")]
DataOption = Annotated[
    str, typer.Option("--data", metavar="DATA", help="'scenes', a Karpathy folder or its JSON file.")
]
DeviceOption = Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda or cuda:N.")]

# Images and the features that are extracted from them.
DataArgument = Annotated[str, typer.Argument(metavar="DATA", help="'scenes', a Karpathy folder, or its JSON file.")]
ImagesOption = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="The images, if they are not beside the JSON.")
]
BackboneWeightsOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Its weights: .safetensors or .pth.")]
BackboneSettingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--backbone-option",
        metavar="KEY=VALUE",
        help="level=4 (the map of stride 16), precision=bf16, or for timm's create_model.",
    ),
]
GraphsOption = Annotated[
    str | None,
    typer.Option("--graphs", metavar="GRAPHS", help="Scene graphs: scenes, scenes:noise=0.3, or a JSON file."),
]
GraphWordsOption = Annotated[
    int, typer.Option("--graph-words", min=1, help="Least count of a graph's word that no caption has.")
]
GraphLabelsOption = Annotated[
    int, typer.Option("--graph-labels", min=1, max=10_000, help="Most frequent predicates that have a label.")
]
ImageSizeOption = Annotated[int | None, typer.Option(min=1, max=MAX_SIDE, help="Pixels a side, if not the backbone's.")]
NormalisationOption = Annotated[str | None, typer.Option(metavar="NAME", help="imagenet, half or clip.")]
RegionCountOption = Annotated[str, typer.Option(metavar="COUNT", help="all, fixed:36, first:50 or adaptive:10-100.")]
RegionBinsOption = Annotated[int, typer.Option(min=1, max=14, help="Bins a side that each box is pooled into.")]
SkipBadImagesOption = Annotated[
    bool, typer.Option("--skip-bad-images", help="Leave unusable images out, and record which.")
]

# Sizes that costs are counted or measured at, and how the table is written.
VocabularySizeOption = Annotated[int, typer.Option(min=5, max=MAX_WORDS, help="Words, special tokens included.")]
TableFormatOption = Annotated[TableFormat, typer.Option("--format", help="How to write the table.")]


@dataclass(frozen=True)
class RunOptions:
    """What `bench run`, `bench plan` and, of what trials depend on, `bench tune` are given; each field is an option."""

    models: RowsOption = "all"
    pretrained: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL=WHERE", help="A pretrained model's weights: a folder or a repository of the hub."),
    ] = None
    cards: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Of captions:FILE: YAML of what is known of the systems.")
    ] = None
    allow_subset: Annotated[
        bool, typer.Option("--allow-subset", help="Score a captions:FILE that lacks images, in a table of its own.")
    ] = False
    margin: MarginOption = None
    place_unfinished: PlaceUnfinishedOption = False
    same_machine: SameMachineOption = False
    plugin: PluginOption = None
    data: DataOption = "scenes"
    images: ImagesOption = None
    skip_bad_images: SkipBadImagesOption = False
    backbone: Annotated[
        str | None, typer.Option("--backbone", metavar="NAME", help="'filterbank', 'scenesnet' or a timm model.")
    ] = None
    backbone_weights: BackboneWeightsOption = None
    backbone_option: BackboneSettingOption = None
    image_size: ImageSizeOption = None
    normalisation: NormalisationOption = None
    regions: Annotated[
        str | None,
        typer.Option(metavar="REGIONS", help="Regions: boxes, windows:4, or a JSON, TSV, HDF5 file or folder."),
    ] = None
    region_count: RegionCountOption = "all"
    region_bins: RegionBinsOption = 1
    graphs: GraphsOption = None
    graph_words: GraphWordsOption = 10
    graph_labels: GraphLabelsOption = 20
    sentence_graphs: Annotated[
        str | None, typer.Option(metavar="FILE", help="JSON of captions' scene graphs, for a stage on them.")
    ] = None
    preset: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Sizes, schedule and decoding of all models.", autocompletion=complete_preset
        ),
    ] = DEFAULT_PRESET
    change: ChangeOption = None
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_SEEDS,
            help="Trainings of each model, by other random numbers; a place needs 2, better 3.",
            show_default="the preset's, 3 or 1",
        ),
    ] = None
    first_seed: Annotated[
        int, typer.Option(min=0, max=MAX_SEED, help="The first of the seeds, for a repetition with others.")
    ] = 0
    budgets: Annotated[
        str, typer.Option(metavar="LIST", help="Multiples of the preset's epochs to train for, as 1,2,4.")
    ] = "1"
    tuned: Annotated[
        list[str] | None,
        typer.Option(metavar="WHERE", help="With values of bench tune: 'workspace', or files of its --export."),
    ] = None
    precision: Annotated[Literal["auto", "fp32", "bf16"], typer.Option("--precision", help="Of computation.")] = "auto"
    log: Annotated[
        list[str] | None,
        typer.Option(metavar="TRACKER", help="Also show runs in tensorboard, wandb or mlflow; may be repeated."),
    ] = None
    device: DeviceOption = "auto"
    devices: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_PROCESSES, help="Devices that train one run together.", show_default="1"),
    ] = None
    jobs: Annotated[
        str,
        typer.Option(envvar="BENCH_JOBS", metavar="N", help="Runs at once; auto: up to 4 on CPU cores, 1 on a GPU."),
    ] = "auto"
    on: Annotated[
        str,
        typer.Option("--on", metavar="WHERE", help="This machine, or a cluster: here, ray, ray:HOST:PORT or slurm."),
    ] = "here"
    cpus_per_run: Annotated[
        float | None, typer.Option(min=0.01, max=MAX_PROCESSES, help="On a cluster: cores of a run.", show_default="1")
    ] = None
    gpus_per_run: Annotated[
        float | None,
        typer.Option(min=0, max=MAX_PROCESSES, help="On a cluster: GPUs of a run, such as 0.5.", show_default="1 or 0"),
    ] = None
    memory_per_run: Annotated[
        float | None,
        typer.Option(
            metavar="GB", min=0.1, max=MAX_MEMORY_GB, help="On a cluster: memory of a run.", show_default="estimated"
        ),
    ] = None
    hours_per_run: Annotated[
        float | None,
        typer.Option(min=0.1, max=MAX_HOURS, help="On Slurm: the limit of a run's time.", show_default="24"),
    ] = None
    workspace: WorkspaceOption = DEFAULT
    db: DatabaseOption = None
    hub: HubOption = None
    more_metrics: Annotated[
        bool, typer.Option("--more-metrics", help="Also diversity and hallucinated objects of all captions.")
    ] = False
    clip: ClipOption = None
    bert: BertOption = None
    instances: InstancesOption = None
    reuse: Annotated[
        Literal["same", "any", "none"], typer.Option(help="Finished runs that count: of the same code, any, or none.")
    ] = "same"
    accept_mixed: Annotated[
        bool, typer.Option("--accept-mixed", help="Add seeds to rows that other versions of torch or numpy made.")
    ] = False


_PANELS = {
    "models": "What to compare",
    "data": "Data and features",
    "preset": "Training",
    "device": "Where it runs, and where results are",
    "hub": "Checkpoints of the hub",
    "more_metrics": "More metrics",
    "reuse": "Re-use of earlier runs",
}


def with_run_options(
    command: Callable[Concatenate[RunOptions, P], None], without: Collection[str] = ()
) -> Callable[..., None]:
    """A command whose first parameter becomes the options of `RunOptions`, `without` some; Typer reads its signature.

    Its other parameters are options too; one of the same name is both, with its own help and default.
    """
    kinds, keyword = get_type_hints(RunOptions, include_extras=True), inspect.Parameter.KEYWORD_ONLY
    panel, declared = "", {}
    for each in fields(RunOptions):
        panel = _PANELS.get(each.name, panel)
        if each.name not in without:
            value, option, *marks = get_args(kinds[each.name])
            option = copy.copy(option)
            option.rich_help_panel = panel
            kind: Any = Annotated[(value, option, *marks)]
            declared[each.name] = inspect.Parameter(each.name, keyword, annotation=kind, default=each.default)
    shared = tuple(declared)
    own = list(inspect.signature(command).parameters.values())[1:]
    kinds = get_type_hints(command, include_extras=True)
    declared |= {each.name: each.replace(kind=keyword, annotation=kinds[each.name]) for each in own}

    @functools.wraps(command)
    def run(**given: Any) -> None:
        options = RunOptions(**{name: given[name] for name in shared})
        command(options, **{parameter.name: given[parameter.name] for parameter in own})  # type: ignore[call-arg]

    run.__signature__ = inspect.Signature(list(declared.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: each.annotation for name, each in declared.items()}
    return run
