"""Options that several commands share, and all of `bench run`, which others take with the same meaning."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec, get_type_hints

import typer

from harness.cli.output import TableFormat
from harness.config.limits import MAX_HOURS, MAX_MEMORY_GB, MAX_PROCESSES, MAX_SEED, MAX_SEEDS, MAX_SIDE, MAX_WORDS
from harness.utils.errors import BenchError
from harness.utils.workspace import DEFAULT

P = ParamSpec("P")


def folder(value: str | Path) -> Path:
    """The folder that `--workspace` names; BenchError where it is empty, which would be the current folder."""
    if not str(value).strip():
        raise BenchError("--workspace is empty", "name a folder, or leave the option out: --workspace workspace")
    return Path(value)


def refuse_empty(option: typer.CallbackParam, value: str | None) -> str | None:
    """The value of an option; BenchError where it is empty, as an unset variable of a script leaves it."""
    if value is not None and not value.strip():
        raise BenchError(
            f"{option.opts[0]} is empty", "give it a value, or leave the option out where it has a default"
        )
    return value


def durable(option: typer.CallbackParam, value: str | None) -> str | None:
    """The value of `--db`; BenchError where its results would be lost with the process."""
    refuse_empty(option, value)
    if value is None or not ("memory" in value or value.startswith("sqlite")):
        return value

    from results.store.engine import is_in_memory, resolve_url

    if is_in_memory(resolve_url(value)):
        raise BenchError(
            f"--db {value} is a database in memory: its results would be lost at the end of the command",
            "name a file, as --db results.sqlite, or leave the option out for the workspace's",
        )
    return value


def finite(option: typer.CallbackParam, value: float | None) -> float | None:
    """The value of an option; BenchError for NaN, which no bound refuses, and infinity."""
    if value is not None and not math.isfinite(value):
        raise BenchError(f"{option.opts[0]} {value} is not a finite number", f"for example {option.opts[0]} 10")
    return value


def refuse_typed(context: typer.Context, parameters: Iterable[str], why: str, hint: str) -> None:
    """BenchError where any of these parameters was typed, as it would have no effect.

    Args:
        parameters: names of the command's parameters.
        why: what the message says behind the options' names.
    """
    options = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    sources = {name: context.get_parameter_source(name) for name in parameters}
    typed = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if typed:
        raise BenchError(f"{', '.join(options[name] for name in typed)}: {why}", hint)


def check_seeds(first: int, count: int, sets: int = 1) -> None:
    """BenchError where the last of `sets` times `count` seeds, from the first on, is beyond the largest seed."""
    if first + sets * count - 1 > MAX_SEED:
        raise BenchError(
            f"--first-seed {first} leaves no room for {sets * count} seeds up to {MAX_SEED}",
            "begin lower: --first-seed 1000",
        )


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
    from harness.config.load import list_presets

    return [name for name in list_presets() if name.startswith(incomplete)]


# What is run, and where it goes.
WorkspaceOption = Annotated[
    Path,
    typer.Option(
        "--workspace", "-w", parser=folder, metavar="PATH", help="Folder of a benchmark's results, caches and reports."
    ),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--db",
        callback=durable,
        envvar="BENCH_DB",
        help="Results database: a SQLite file or any SQLAlchemy URL. Without it, the workspace's bench.sqlite.",
    ),
]
PluginOption = Annotated[
    list[str] | None, typer.Option("--plugin", help="Python module or file that registers models.")
]
ModelsOption = Annotated[
    str, typer.Option(help="Names or globs, separated by commas, or 'all'.", autocompletion=complete_models)
]
PresetOption = Annotated[
    str, typer.Option(help="Name of a preset: sizes, schedule and decoding.", autocompletion=complete_preset)
]
RowsOption = Annotated[
    str,
    typer.Option(
        help="Names or globs, hf:ORG/NAME or hf:FOLDER, captions:FILE, ensemble:MODEL:SEEDS, by commas; or 'all'.",
        autocompletion=complete_models,
    ),
]
PromptOption = Annotated[
    str | None,
    typer.Option(help="What models of hf: are asked: a template's name (one word), or a text; '' for none."),
]
CleanOption = Annotated[
    str | None,
    typer.Option(help="What is done to captions of hf:, in this order: prompt, quotes, first-sentence."),
]
ClipOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL", callback=refuse_empty, help="With more metrics: a CLIP model, FOLDER or ORG/NAME[@REVISION]."
    ),
]
BertOption = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL", callback=refuse_empty, help="With more metrics: a BERT model, FOLDER or ORG/NAME[@REVISION]."
    ),
]
InstancesOption = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="With more metrics: COCO's instances_*.json, for CHAIR; may be repeated."),
]
HubAttentionOption = Annotated[
    str | None,
    typer.Option(help="How models of hf: compute attention: eager, sdpa or flash_attention_2.  [default: the model's]"),
]
HubDtypeOption = Annotated[
    str | None,
    typer.Option(help="Weights and arithmetic of models of hf:: fp32, bf16 or fp16.  [default: the run's]"),
]
ChangeOption = Annotated[list[str] | None, typer.Option("--set", help="KEY.PATH=VALUE: change the preset.")]
PlaceUnfinishedOption = Annotated[
    bool, typer.Option("--place-unfinished", help="Give places to models that were still learning, too.")
]
MarginOption = Annotated[
    float | None,
    typer.Option(
        min=0.0, max=1000.0, help="Points below which a difference counts as none.  [default: 2 % of human or the best]"
    ),
]
SameMachineOption = Annotated[
    bool, typer.Option("--same-machine", help="Leave rows out that another processor or other versions computed.")
]
RankingMetricOption = Annotated[str, typer.Option("--metric", help="Sort and place by this metric.")]
DataOption = Annotated[str, typer.Option("--data", help="'scenes', a Karpathy folder, or a Karpathy JSON file.")]
PrecisionOption = Annotated[str, typer.Option("--precision", help="auto, fp32 or bf16.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
JobsOption = Annotated[
    str,
    typer.Option(envvar="BENCH_JOBS", help="Models that train at once, or auto: up to 4 on CPU cores, 1 on a GPU."),
]

StorageOption = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        callback=refuse_empty,
        help="Where machines share no disk: keeps weights, checkpoints and features; s3://, gs:// or file://.",
    ),
]

# Where runs are executed, and what each gets of a cluster.
CpusPerRunOption = Annotated[
    float | None,
    typer.Option(min=0.01, max=MAX_PROCESSES, callback=finite, help="On a cluster: cores of a run.  [default: 1]"),
]
GpusPerRunOption = Annotated[
    float | None,
    typer.Option(
        min=0, max=MAX_PROCESSES, callback=finite, help="On a cluster: GPUs of a run, such as 0.5.  [default: 1 or 0]"
    ),
]
MemoryPerRunOption = Annotated[
    float | None,
    typer.Option(
        metavar="GB",
        min=0.1,
        max=MAX_MEMORY_GB,
        callback=finite,
        help="On a cluster: memory of a run.  [default: estimated]",
    ),
]

# Images and the features that are extracted from them.
DataArgument = Annotated[str, typer.Argument(metavar="DATA", help="'scenes', a Karpathy folder, or its JSON file.")]
ImagesOption = Annotated[Path | None, typer.Option(help="Folder of the images, if they are not beside the JSON.")]
BackboneWeightsOption = Annotated[Path | None, typer.Option(help="Its weights: .safetensors or .pth.")]
BackboneSettingOption = Annotated[
    list[str] | None, typer.Option("--backbone-option", help="KEY=VALUE for timm's create_model.")
]
BackboneOption = Annotated[
    str | None, typer.Option("--backbone", callback=refuse_empty, help="'filterbank', 'scenesnet' or a timm model.")
]
RegionsOption = Annotated[
    str | None,
    typer.Option(
        "--regions",
        callback=refuse_empty,
        help="Regions for all models: boxes, windows:4, or a JSON, TSV, HDF5 file or folder.",
    ),
]
GraphsOption = Annotated[
    str | None,
    typer.Option(
        "--graphs", callback=refuse_empty, help="Scene graphs of the regions: scenes, scenes:noise=0.3, or a JSON file."
    ),
]
GraphWordsOption = Annotated[
    int, typer.Option("--graph-words", min=1, help="Times that training graphs need to have a word no caption has.")
]
GraphLabelsOption = Annotated[
    int, typer.Option("--graph-labels", min=1, max=10_000, help="Predicates that have a label, most frequent first.")
]
SentenceGraphsOption = Annotated[
    str | None,
    typer.Option(
        "--sentence-graphs",
        callback=refuse_empty,
        help="JSON of captions' scene graphs, where a stage learns from them.",
    ),
]
ImageSizeOption = Annotated[int | None, typer.Option(min=1, max=MAX_SIDE, help="Pixels a side, if not the backbone's.")]
NormalisationOption = Annotated[str | None, typer.Option(help="imagenet, half or clip.")]
RegionCountOption = Annotated[str, typer.Option(help="all, fixed:36, first:50 or adaptive:10-100.")]
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
    data: DataOption = "scenes"
    images: ImagesOption = None
    preset: PresetOption = "quick"
    change: ChangeOption = None
    seeds: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_SEEDS, help="Seeds to train each model with.", show_default="the preset's, 3 or 1"),
    ] = None
    first_seed: Annotated[
        int, typer.Option(min=0, max=MAX_SEED, help="The first of the seeds, for a repetition with others.")
    ] = 0
    budgets: Annotated[
        str,
        typer.Option(
            metavar="LIST", help="Train each model under each of these multiples of the preset's epochs, such as 1,2,4."
        ),
    ] = "1"
    control: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            callback=refuse_empty,
            help="Train MODEL with as many further seeds too, and with another preprocessing; auto: the first that "
            "can.",
        ),
    ] = None
    workspace: WorkspaceOption = DEFAULT
    db: DatabaseOption = None
    storage: StorageOption = None
    backbone: BackboneOption = None
    backbone_weights: BackboneWeightsOption = None
    backbone_option: BackboneSettingOption = None
    image_size: ImageSizeOption = None
    normalisation: NormalisationOption = None
    regions: RegionsOption = None
    region_count: RegionCountOption = "all"
    region_bins: RegionBinsOption = 1
    graphs: GraphsOption = None
    graph_words: GraphWordsOption = 10
    graph_labels: GraphLabelsOption = 20
    sentence_graphs: SentenceGraphsOption = None
    device: DeviceOption = "auto"
    devices: Annotated[
        int | None,
        typer.Option(
            min=1, max=MAX_PROCESSES, help="Devices that train each model together: 1, or torchrun's WORLD_SIZE."
        ),
    ] = None
    jobs: JobsOption = "auto"
    on: Annotated[
        str,
        typer.Option(
            "--on",
            metavar="WHERE",
            callback=refuse_empty,
            help="Where runs are executed: here, ray[:HOST:PORT] or slurm.",
        ),
    ] = "here"
    cpus_per_run: CpusPerRunOption = None
    gpus_per_run: GpusPerRunOption = None
    memory_per_run: MemoryPerRunOption = None
    hours_per_run: Annotated[
        float | None,
        typer.Option(
            min=0.1, max=MAX_HOURS, callback=finite, help="On Slurm: the limit of a run's time.  [default: 24]"
        ),
    ] = None
    compiled: Annotated[bool, typer.Option("--compile", help="Compile training passes (torch.compile).")] = False
    precision: PrecisionOption = "auto"
    skip_bad_images: SkipBadImagesOption = False
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Train each model with its tuned values, of this workspace's bench tune.")
    ] = False
    tuned_from: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="The same, of a file of bench tune --export; again for one of a later stage (--stage)."
        ),
    ] = None
    rerun: Annotated[bool, typer.Option("--rerun", help="Repeat finished runs.")] = False
    accept_code_changes: Annotated[
        bool, typer.Option("--accept-code-changes", help="Re-use finished runs made by other code.")
    ] = False
    accept_mixed: Annotated[
        bool, typer.Option("--accept-mixed", help="Add seeds to rows that other versions of torch or numpy made.")
    ] = False
    margin: MarginOption = None
    place_unfinished: PlaceUnfinishedOption = False
    same_machine: SameMachineOption = False
    pretrained: Annotated[
        list[str] | None, typer.Option(help="MODEL=FOLDER or hub repository of a pretrained model's weights.")
    ] = None
    prompt: PromptOption = None
    clean: CleanOption = None
    hub_attention: HubAttentionOption = None
    hub_dtype: HubDtypeOption = None
    cards: Annotated[
        Path | None, typer.Option(help="With captions:FILE: YAML of what is known of the systems, by file name.")
    ] = None
    allow_subset: Annotated[
        bool, typer.Option("--allow-subset", help="With captions:FILE: score the images it has; the signature says so.")
    ] = False
    more_metrics: Annotated[
        bool,
        typer.Option(
            "--more-metrics", help="Also diversity and hallucinated objects of all captions; see --clip and --bert."
        ),
    ] = False
    clip: ClipOption = None
    bert: BertOption = None
    instances: InstancesOption = None
    log: Annotated[
        list[str] | None,
        typer.Option(metavar="TRACKER", help="Also show runs in tensorboard, wandb or mlflow; may be repeated."),
    ] = None
    plugin: PluginOption = None


def with_run_options(
    command: Callable[Concatenate[RunOptions, P], None], without: Collection[str] = ()
) -> Callable[..., None]:
    """A command whose first parameter becomes the options of `RunOptions`; Typer reads its signature.

    Args:
        command: its other parameters are options too; one of the same name is both, with its own help and default.
        without: options of `RunOptions` that the command does not have.
    """
    kinds = get_type_hints(RunOptions, include_extras=True)
    declared = {each.name: (kinds[each.name], each.default) for each in fields(RunOptions) if each.name not in without}
    shared = tuple(declared)
    own = list(inspect.signature(command).parameters.values())[1:]
    kinds = get_type_hints(command, include_extras=True)
    declared |= {parameter.name: (kinds[parameter.name], parameter.default) for parameter in own}

    @functools.wraps(command)
    def run(**given: Any) -> None:
        options = RunOptions(**{name: given[name] for name in shared})
        command(options, **{parameter.name: given[parameter.name] for parameter in own})  # type: ignore[call-arg]

    signature = inspect.Signature(
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)
            for name, (kind, default) in declared.items()
        ],
        return_annotation=None,
    )
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__annotations__ = {name: kind for name, (kind, _) in declared.items()}
    return run
