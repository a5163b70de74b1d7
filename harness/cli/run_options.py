"""The options of `bench run`, declared once: `bench plan` takes all of them too, with the same meaning."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any, Concatenate, ParamSpec, get_type_hints

import typer

from harness.cli.options import (
    BackboneOption,
    BackboneSettingOption,
    BackboneWeightsOption,
    BertOption,
    ChangeOption,
    CleanOption,
    ClipOption,
    ControlOption,
    CpusPerRunOption,
    DatabaseOption,
    DataOption,
    DeviceOption,
    FirstSeedOption,
    GpusPerRunOption,
    GraphLabelsOption,
    GraphsOption,
    GraphWordsOption,
    HoursPerRunOption,
    HubAttentionOption,
    HubDtypeOption,
    ImageSizeOption,
    ImagesOption,
    InstancesOption,
    JobsOption,
    MemoryPerRunOption,
    NormalisationOption,
    OnOption,
    PlaceUnfinishedOption,
    PluginOption,
    PrecisionOption,
    PresetOption,
    PromptOption,
    RegionBinsOption,
    RegionCountOption,
    RegionsOption,
    RowsOption,
    SeedsOption,
    SentenceGraphsOption,
    SkipBadImagesOption,
    StorageOption,
    WorkspaceOption,
    refuse_empty,
)
from harness.config.limits import MAX_PROCESSES
from harness.utils.workspace import DEFAULT

P = ParamSpec("P")


@dataclass(frozen=True)
class RunOptions:
    """What `bench run` and `bench plan` are given; each field is an option."""

    models: RowsOption = "all"
    data: DataOption = "scenes"
    images: ImagesOption = None
    preset: PresetOption = "quick"
    change: ChangeOption = None
    seeds: SeedsOption = None
    first_seed: FirstSeedOption = 0
    control: ControlOption = None
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
    on: OnOption = "here"
    cpus_per_run: CpusPerRunOption = None
    gpus_per_run: GpusPerRunOption = None
    memory_per_run: MemoryPerRunOption = None
    hours_per_run: HoursPerRunOption = None
    compiled: Annotated[bool, typer.Option("--compile", help="Compile training passes (torch.compile).")] = False
    precision: PrecisionOption = "auto"
    skip_bad_images: SkipBadImagesOption = False
    tuned: Annotated[
        bool, typer.Option("--tuned", help="Train each model with its tuned values, of this workspace's bench tune.")
    ] = False
    tuned_from: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", callback=refuse_empty, help="The same, with the values of a file of bench tune --export."
        ),
    ] = None
    untuned: Annotated[
        bool, typer.Option("--untuned", help="Train as the preset is, where tuned values of it ship.")
    ] = False
    rerun: Annotated[bool, typer.Option("--rerun", help="Repeat finished runs.")] = False
    accept_code_changes: Annotated[
        bool, typer.Option("--accept-code-changes", help="Re-use finished runs made by other code.")
    ] = False
    place_unfinished: PlaceUnfinishedOption = False
    pretrained: Annotated[
        list[str] | None, typer.Option(help="MODEL=FOLDER or hub repository of a pretrained model's weights.")
    ] = None
    prompt: PromptOption = None
    clean: CleanOption = None
    hub_attention: HubAttentionOption = None
    hub_dtype: HubDtypeOption = None
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


OPTION_NAMES = tuple(field.name for field in fields(RunOptions))
"""Names of the parameters."""


def with_run_options(command: Callable[Concatenate[RunOptions, P], None]) -> Callable[..., None]:
    """A command whose first parameter becomes all options of `RunOptions`; Typer reads its signature."""

    @functools.wraps(command)
    def run(**given: Any) -> None:
        options = RunOptions(**{name: given.pop(name) for name in OPTION_NAMES})
        command(options, **given)  # type: ignore[call-arg]

    kinds = get_type_hints(RunOptions, include_extras=True)
    declared = {field.name: (kinds[field.name], field.default) for field in fields(RunOptions)}
    own = list(inspect.signature(command).parameters.values())[1:]
    kinds = get_type_hints(command, include_extras=True)
    declared |= {parameter.name: (kinds[parameter.name], parameter.default) for parameter in own}
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
