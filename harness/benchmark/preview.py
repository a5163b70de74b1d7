"""What a benchmark would do, without doing any of it: nothing is written, extracted, drawn or fetched.

Runs are planned by the same code from the same data and settings as `run_benchmark` plans them, so that finished ones
are known.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import fmean

from harness.benchmark.context import RunContext, looking, open_context, open_inputs
from harness.benchmark.identity.reuse import settle
from harness.benchmark.plan import Asked, Request, plan
from harness.benchmark.training_costs import usual_length
from harness.config.execution import ExecutionConfig
from harness.data.dataset import SCENES
from harness.data.features import Features
from harness.data.graphs.images import check_source
from harness.data.prepare_features import configured_backbone, missing_features
from harness.data.regions.features import RegionFeatures
from harness.data.regions.opening import check_exists, needs_backbone
from harness.data.scenes.dataset import ScenesConfig, scenes_folder
from harness.measure.estimate import KNOWN, SCENE_REGIONS, DataShape
from harness.utils.progress import Reporter
from results import Store
from results.records import DatasetRecord, RunSpec
from results.store.engine import resolve_url, sqlite_file

_USUAL_REGIONS = (36, 2048)
"""Regions of an image and their channels, where neither is known before they are converted."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What is known before a benchmark starts.

    Attributes:
        specs: all runs, as they would be executed or re-used; empty where `unknown` says why they are not known.
        finished: keys of those that would be re-used.
        unknown: why no finished run can be told; "" where they are known.
        record: the data set as the store has it, where it is here.
    """

    dataset: str
    shape: DataShape
    specs: list[RunSpec] = field(default_factory=list)
    finished: frozenset[str] = frozenset()
    unknown: str = ""
    first: tuple[str, ...] = ()
    record: DatasetRecord | None = None


def preview(request: Request, asked: Asked, reporter: Reporter) -> Preview:
    """Look at the data, the caches and the results of a request."""
    workspace, opening = request.workspace, asked.opening
    regions = request.features.regions
    folder = scenes_folder(workspace.cache, ScenesConfig())
    if request.data == SCENES and request.images is None and not folder.is_dir():
        shape = KNOWN[SCENES]
        configured_backbone(request.features)  # what it refuses is refused now
        if request.features.graphs is not None:
            check_source(request.features.graphs)
        if regions is not None:
            check_exists(regions.source) if not isinstance(regions.source, str) else None
            shape = replace(shape, cells=SCENE_REGIONS[0], channels=SCENE_REGIONS[1])
        if sqlite_file(resolve_url(workspace.database)) is not None:
            _settled([], request, reporter)  # a file that cannot be read is refused now
        drawn = f"{shape.train + shape.val + shape.test:,} pictures drawn, and their features"
        return Preview(SCENES, shape, unknown="the embedded data are not drawn in this workspace", first=(drawn,))
    dataset, backbone = open_inputs(opening, workspace)
    missing = missing_features(
        dataset, request.features, backbone, sees=looking(opening, dataset), cache_dir=workspace.cache
    )
    context = open_context(opening, workspace, reporter, ExecutionConfig(), make=False)
    if missing and regions is not None:
        unknown = "the regions, which identify them, are not in the cache"
        return Preview(dataset.name, _shape(context), unknown=unknown, first=tuple(missing))
    specs, finished = _settled(plan(request, asked, context, reporter), request, reporter)
    record = context.data.record(context.signature["data"])
    return Preview(dataset.name, _shape(context), specs, finished, first=tuple(missing), record=record)


def has_results(request: Request) -> bool:
    """Whether there is a database to read; `bench run` makes one where there is none."""
    place = request.workspace
    file = sqlite_file(resolve_url(place.database))
    if file is None:
        return True
    try:
        file.lstat()
        return True
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError):
        return True  # an error of the name, which opening it tells
    return place.db is not None and not file.absolute().parent.is_dir()  # an error, which opening it tells


def _settled(specs: list[RunSpec], request: Request, reporter: Reporter) -> tuple[list[RunSpec], frozenset[str]]:
    """The specs that finished runs stand for, and the keys of these; says what the command itself would say."""
    if not has_results(request):
        return specs, frozenset()
    with Store(request.workspace.database, read_only=True) as store:
        settled, notes = settle(specs, store, accept=request.accept_code_changes, rerun=request.rerun)
        done = {spec.key for spec in settled if store.status(spec.key) == "finished"}
    for note in notes:
        reporter.note(note)
    return settled, frozenset() if request.rerun else frozenset(done)


def _shape(context: RunContext) -> DataShape:
    """The sizes of the data, with the features as they are cached, or as the backbone will give them."""
    data = context.data
    cells, channels = _features_of(context)
    return DataShape(
        train=len(data.train),
        val=len(data.val),
        test=sum(len(samples) for samples in data.evaluated.values()),
        captions=fmean(len(sample.captions) for sample in data.train),
        words=len(context.inputs.vocabulary),
        caption_length=usual_length(context),
        cells=cells,
        channels=channels,
    )


def _features_of(context: RunContext) -> tuple[int, int]:
    """Cells or regions of an image, and their channels."""
    data, regions = context.data, context.data.feature_config.regions
    height, width = data.backbone.grid
    if isinstance(data.features, Features):
        return data.features.grid[0] * data.features.grid[1], data.features.dim
    if isinstance(data.features, RegionFeatures):
        counts = data.features.counts(data.features.image_ids)
        return max(round(fmean(counts)), 1) if counts else 1, data.features.dim
    if regions is None:
        return height * width, data.backbone.dim
    count = SCENE_REGIONS[0] if data.dataset.name == SCENES else _USUAL_REGIONS[0]
    return count, data.backbone.dim if needs_backbone(regions.source) else _USUAL_REGIONS[1]
