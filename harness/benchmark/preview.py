"""What a benchmark would do and take, without doing any of it: nothing is written, extracted, drawn or fetched.

Runs are planned by the same code from the same data and settings as `run_benchmark` plans them, so that finished ones
are known.
"""

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean

from harness.benchmark.context import RunContext, looking, open_context, open_inputs
from harness.benchmark.costs import pass_costs, usual_length
from harness.benchmark.identity.reuse import settle
from harness.benchmark.identity.signature import training_fields
from harness.benchmark.plan import Asked, Request, plan
from harness.data.backbones.backbone import open_backbone
from harness.data.dataset import SCENES
from harness.data.features import Features
from harness.data.graph_source import check_source
from harness.data.prepare_features import missing_features
from harness.data.regions.features import RegionFeatures
from harness.data.regions.opening import check_exists, needs_backbone
from harness.data.scenes.dataset import ScenesConfig, scenes_folder
from harness.measure.estimate import KNOWN, SCENE_REGIONS, DataShape, StagePlan, plan_stages
from harness.measure.memory import create_within_memory
from harness.measure.speed import measure_speed
from harness.training.stage import stages_for
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results import Store
from results.records import DatasetRecord, RunSpec
from results.runs.planning import run_seconds
from results.store.engine import resolve_url, sqlite_file
from zoo import HasBackbone

_MOMENT_S, MOMENT_IMAGES = 0.1, 4
"""Least seconds of each of the two timings of a model, and the images of their batches."""
_MOMENT_GMAC = 20.0
"""The most a forward pass over one image may take to be timed on a CPU: larger steps take half a minute."""
_BUDGET_S = 20.0
_USUAL_REGIONS = (36, 2048)
"""Regions of an image and their channels, where neither is known before they are converted."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What is known before a benchmark starts.

    Attributes:
        specs: all runs, as they would be executed or re-used; empty where `unknown` says why they are not known.
        finished: keys of those that would be re-used.
        unknown: why no finished run can be told; "" where they are known.
        first: what is made before any run.
        record: the data set as the store has it, where it is here.
        seconds: what stored runs of these conditions took, by model and budget.
    """

    dataset: str
    shape: DataShape
    unknown: str = ""
    first: Sequence[str] = ()
    specs: Sequence[RunSpec] = ()
    record: DatasetRecord | None = None
    finished: frozenset[str] = frozenset()
    seconds: Mapping[tuple[str, int], float] = field(default_factory=dict)


def preview(request: Request, asked: Asked, reporter: Reporter, *, here: bool) -> Preview:
    """Look at the data, the caches and the results of a request; of data that are not `here`, the sizes are known.

    What `run_benchmark` would refuse is refused.
    """
    if here:
        found = _look(request, asked, reporter)
    else:
        shape, recipe = KNOWN[request.data], request.preset.recipe
        if recipe is not None and recipe.restval == "dropped":
            shape = replace(shape, train=shape.train - shape.restval)
        found = Preview(request.data, shape, f"{request.data} is known by its sizes alone")
    place = request.workspace
    if os.path.lexists(place.root) and not place.root.is_dir():
        raise BenchError(f"the workspace {place.root} is not a folder", "name a folder with --workspace")
    if not _has_results(place):
        return found
    with Store(place.database, read_only=True) as store:
        specs, notes = settle(found.specs, store, accept=request.accept_code_changes, rerun=request.rerun)
        done = {spec.key for spec in specs if not request.rerun and store.status(spec.key) == "finished"}
        seconds: dict[tuple[str, int], float] = {}
        for budget in request.budgets:
            preset = request.preset.model_copy(update={"schedule": request.preset.schedule.times(budget)})
            took = run_seconds(store, found.dataset, training_fields(preset))
            seconds |= {(model, budget): each for model, each in took.items()}
    for note in notes:
        reporter.note(note)
    return replace(found, specs=specs, finished=frozenset(done), seconds=seconds)


def _look(request: Request, asked: Asked, reporter: Reporter) -> Preview:
    """What is known of data that are here, or are drawn."""
    workspace, opening, regions = request.workspace, asked.opening, request.features.regions
    if (
        request.data == SCENES
        and request.images is None
        and not scenes_folder(workspace.cache, ScenesConfig()).is_dir()
    ):
        shape = KNOWN[SCENES]
        open_backbone(request.features)  # what it refuses is refused now
        if request.features.graphs is not None:
            check_source(request.features.graphs)
        if regions is not None:
            check_exists(regions.source) if not isinstance(regions.source, str) else None
            shape = replace(shape, cells=SCENE_REGIONS[0], channels=SCENE_REGIONS[1])
        drawn = f"{shape.train + shape.val + shape.test:,} pictures drawn, and their features"
        return Preview(SCENES, shape, "the embedded data are not drawn in this workspace", (drawn,))
    dataset, backbone = open_inputs(opening, workspace)
    missing = missing_features(
        dataset, request.features, backbone, sees=looking(opening, dataset), cache_dir=workspace.cache
    )
    context = open_context(opening, workspace, reporter, make=False)
    found = Preview(dataset.name, _shape(context), first=missing)
    if missing and regions is not None:
        return replace(found, unknown="the regions, which identify them, are not in the cache")
    record = context.data.record(context.signature["data"])
    with ExitStack() as stack:
        store = None
        if _has_results(workspace):
            store = stack.enter_context(Store(workspace.database, read_only=True))
        return replace(found, specs=plan(request, asked, context, reporter, store), record=record)


def _has_results(place: Workspace) -> bool:
    """Whether there is a database to read, or to tell the error of; `bench run` makes one where there is none."""
    file = sqlite_file(resolve_url(place.database))
    try:
        return file is None or bool(file.lstat())
    except (FileNotFoundError, NotADirectoryError):
        return place.db is not None and file is not None and not file.absolute().parent.is_dir()
    except (OSError, ValueError):
        return True  # an error of the name


def _shape(context: RunContext) -> DataShape:
    """The sizes of the data, with the features as they are cached, or as the backbone will give them."""
    data, regions = context.data, context.data.feature_config.regions
    if isinstance(data.features, Features):
        cells, channels = math.prod(data.features.grid), data.features.dim
    elif isinstance(data.features, RegionFeatures):
        counts = data.features.counts(data.features.image_ids)
        cells, channels = max(round(fmean(counts)), 1) if counts else 1, data.features.dim
    elif regions is None:
        cells, channels = math.prod(data.backbone.grid), data.backbone.dim
    else:
        cells = SCENE_REGIONS[0] if data.dataset.name == SCENES else _USUAL_REGIONS[0]
        channels = data.backbone.dim if needs_backbone(regions.source) else _USUAL_REGIONS[1]
    return DataShape(
        train=len(data.train),
        val=len(data.val),
        test=sum(len(samples) for samples in data.evaluated.values()),
        captions=fmean([len(sample.captions) for sample in data.train] or [0]),
        words=len(context.inputs.vocabulary),
        caption_length=usual_length(context) if data.train else 0,
        cells=cells,
        channels=channels,
    )


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one run of a model takes under a budget.

    Attributes:
        work: multiply-accumulates of training, validation and captioning.
        seconds: the least and the most: equal as stored, and of a moment's measurement from a floor a step to its
            rate; None where `told` says why they are not known.
        told: "stored" or "measured".
    """

    model: str
    budget: int
    parameters: int
    stages: Sequence[StagePlan]
    work: int
    seconds: tuple[float, float] | None
    told: str


def estimates(
    request: Request, asked: Asked, found: Preview, shape: DataShape, reporter: Reporter, *, elsewhere: bool
) -> list[Estimate]:
    """What a run of each model takes under each budget; models are counted and timed one after the other."""
    names, made, spent = [model.name for model in asked.models if model.kind == "trained"], list[Estimate](), 0.0
    preset, sizes = request.preset, {"vocab_size": shape.words, "visual_dim": shape.channels}
    device, decoding = asked.opening.device, preset.decoding

    def estimated(model: str, why: str, say: Callable[[str], None]) -> Iterator[Estimate]:
        """A model's under each budget; it is not timed where `why` says so, or all are stored."""
        say(f"{model}: building")
        built = create_within_memory(model, **sizes, **preset.model_arguments(model, **sizes))
        if isinstance(built, HasBackbone):
            reporter.note(f"counting {model} with its backbone, which takes minutes where that is large")
        length = min(shape.caption_length, built.max_len)
        say(f"{model}: counting")
        costs, visual = pass_costs(built, cells=shape.cells, caption_length=length)
        captioning = shape.test * (costs.backbone + costs.decoding(decoding.beam_size, decoding.max_len))
        pass_gmac = (costs.backbone + costs.encoder + costs.caption) / 1e9
        if not why and device == "cpu" and pass_gmac > _MOMENT_GMAC:
            why = f"an image takes {pass_gmac:.0f} GMAC, too many to time on a CPU in a moment"
        speed = None
        if not why and any((model, budget) not in found.seconds for budget in request.budgets):
            say(f"{model}: timing")
            probe, seen = built.to(device), visual.to(device)
            speed = measure_speed(probe, seen, costs, length, images=MOMENT_IMAGES, min_s=_MOMENT_S)
        schedule = stages_for(built, preset.schedule)
        for budget in request.budgets:
            stages = plan_stages(schedule.times(budget), costs, shape, decoding.max_len)
            training = sum(each.training for each in stages)
            without = sum(each.decoding for each in stages) + captioning
            seconds, told = None, why
            if (took := found.seconds.get((model, budget))) is not None:
                seconds, told = (took, took), "stored"
            elif speed is not None:
                floor = speed.step_s * sum(each.steps for each in stages)
                rate = (training / speed.training + without / speed.decoding) / request.execution.devices
                seconds, told = (min(floor, rate), max(floor, rate)), "measured"
            yield Estimate(model, budget, costs.parameters, stages, training + without, seconds, told)

    with reporter.task("counting and timing", len(names)) as task:
        for number, name in enumerate(names):
            started = time.monotonic()
            why = f"{_BUDGET_S:.0f} s of measuring are over" if spent >= _BUDGET_S else ""
            why = "no run is stored here, and runs are elsewhere" if elsewhere else why
            made += estimated(name, why, partial(task.reach, number))
            spent += time.monotonic() - started
    return made
