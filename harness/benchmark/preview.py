"""What a benchmark would do, without doing any of it: nothing is written, extracted, drawn or fetched.

Runs are planned from the same data, settings and code as `run_benchmark` plans them, so that finished ones are known.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

import torch

from harness.benchmark.benchmark import Request, choose_precision, plan_benchmark
from harness.benchmark.context import Execution, RunContext, assemble_context, open_inputs
from harness.benchmark.identity.reuse import settle
from harness.benchmark.models import RequestedModel, graph_kinds
from harness.benchmark.training_costs import usual_length
from harness.data.backbones.backbone import Backbone
from harness.data.chunks import Chunks
from harness.data.dataset import SCENES, Dataset, Sample
from harness.data.features import Features
from harness.data.graphs.images import check_source, prepare_graphs
from harness.data.prepare_features import (
    Prepared,
    configured_backbone,
    missing_features,
    prepare_features,
    warn_of_preprocessing,
)
from harness.data.regions.features import RegionFeatures
from harness.data.regions.opening import check_exists, needs_backbone
from harness.data.scenes.dataset import ScenesConfig, scenes_folder
from harness.measure.estimate import KNOWN, SCENE_REGIONS, DataShape
from harness.metrics.signature import EvaluationSettings
from harness.metrics.spice import find_spice
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter, describe_seconds
from results import Store
from results.records import RunSpec
from results.store.engine import resolve_url, sqlite_file

PROBED_IMAGES = 4
"""Whose features are computed, and forgotten, to tell how long those of all take."""
_USUAL_REGIONS = (36, 2048)
"""Regions of an image and their channels, where neither is known before they are converted."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What is known before a benchmark starts.

    Attributes:
        dataset: name of the data.
        shape: of the data, and of an image's features.
        specs: all runs, as they would be executed or re-used; empty where `unknown` says why they are not known.
        finished: keys of those that would be re-used.
        unknown: why no finished run can be told; "" where they are known.
        first: what would be made before the first run, with the time that it takes where that was probed.
    """

    dataset: str
    shape: DataShape
    specs: list[RunSpec] = field(default_factory=list)
    finished: frozenset[str] = frozenset()
    unknown: str = ""
    first: tuple[str, ...] = ()


def preview(
    request: Request,
    models: Sequence[RequestedModel],
    control: RequestedModel | None,
    device: torch.device,
    reporter: Reporter,
) -> Preview:
    """Look at the data, the caches and the results of a request.

    Raises:
        BenchError: as `run_benchmark` would, of data, backbone and tuned values.
    """
    cache = request.workspace.cache
    folder = scenes_folder(cache, ScenesConfig())
    if request.data == SCENES and request.images is None and not folder.is_dir():
        shape, regions = KNOWN[SCENES], request.features.regions
        configured_backbone(request.features)  # what it refuses is refused now
        if regions is not None and isinstance(regions.source, Path):
            check_exists(regions.source)
        if request.features.graphs is not None:
            check_source(request.features.graphs)
        if regions is not None:
            shape = replace(shape, cells=SCENE_REGIONS[0], channels=SCENE_REGIONS[1])
        drawn = f"{shape.train + shape.val + shape.test:,} pictures drawn"
        features = "their features (not timed: there is no picture yet)"
        if sqlite_file(resolve_url(request.workspace.database)) is not None:
            _settled([], request, reporter)  # a file that cannot be read is refused now
        unknown = "the embedded data are not drawn in this workspace"
        return Preview(SCENES, shape, unknown=unknown, first=(drawn, features))
    preset, sees = request.preset.untuned(), {model.name: model.visual for model in models}
    dataset, backbone = open_inputs(request.data, request.images, preset, request.features, request.workspace)
    warn_of_preprocessing(request.features, sees, reporter)
    missing = missing_features(dataset, request.features, backbone, sees=sees, cache_dir=cache)
    described = request.features.regions is None or not missing
    if missing:
        seen = Prepared(None, backbone.describe() if described else "", dict(dataset.faults))
    else:
        seen = prepare_features(
            dataset,
            request.features,
            backbone,
            sees=sees,
            cache_dir=cache,
            may_skip=request.skip_bad_images,
            device=device,
            reporter=reporter,
        )
    context = assemble_context(
        dataset,
        backbone,
        seen,
        graphs=prepare_graphs(
            dataset,
            request.features,
            seen,
            graph_kinds(models),
            may_skip=request.skip_bad_images,
            reporter=reporter,
        ),
        preset=preset,
        feature_config=request.features,
        evaluation=EvaluationSettings(spice=find_spice() is not None),
        execution=Execution(device, choose_precision(request.precision, device), request.execution),
        cache=cache,
    )
    first = tuple(_with_time(what, dataset, backbone, device) for what in missing)
    if not described:
        unknown = "the regions, which identify them, are not in the cache"
        return Preview(dataset.name, _shape(context), unknown=unknown, first=first)
    if request.tuned is not None and (trained := [model for model in models if model.kind == "trained"]):
        context = replace(context, tuned=request.tuned(context, trained, reporter))
    specs, apart, _ = plan_benchmark(models, control, request, context, reporter)
    specs, finished = _settled([*specs, *apart], request, reporter)
    return Preview(dataset.name, _shape(context), specs, finished, first=first)


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


def _with_time(what: str, dataset: Dataset, backbone: Backbone, device: torch.device) -> str:
    """What is to be made, with an estimate where it is features of a backbone."""
    if not what.startswith("features"):
        return what
    samples = [sample for sample in dataset.samples if sample.image_id not in dataset.faults]
    try:
        _compute(dataset, samples[:1], backbone, device)
        started = time.perf_counter()
        _compute(dataset, samples[:PROBED_IMAGES], backbone, device)
    except BenchError as error:
        return f"{what} (not timed: {error})"
    seconds = (time.perf_counter() - started) / len(samples[:PROBED_IMAGES]) * len(samples)
    return f"{what} (about {describe_seconds(seconds)} on {device.type} here)"


def _compute(dataset: Dataset, samples: Sequence[Sample], backbone: Backbone, device: torch.device) -> None:
    for _, batches in Chunks(dataset, samples, backbone, PROBED_IMAGES, str(device)).compute([0]):
        list(batches)
