"""What a benchmark would do, without doing any of it: nothing is written, extracted, drawn or fetched.

Runs are planned by the same code from the same data and settings as `run_benchmark` plans them, so that finished ones
are known.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

from harness.benchmark.context import open_context, open_inputs, visual_kinds
from harness.benchmark.plan import Benchmark, Resolved, check_rows, choose_jobs, plan
from harness.benchmark.reuse import reuse_finished_runs
from harness.benchmark.signature import training_fields
from harness.data.backbones.opening import open_backbone
from harness.data.graph_source import check_source
from harness.data.known_sizes import KNOWN_SIZES
from harness.data.prepare_features import missing_features
from harness.data.regions.opening import check_exists
from harness.data.scenes.dataset import SCENES, scenes_folder
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results import Store
from results.records import DatasetRecord, RunSpec
from results.runs.planning import StoredVariances, run_seconds, stored_variances
from results.store.engine import resolve_url, sqlite_file

TEST_SPLIT = "test"


@dataclass(frozen=True, slots=True)
class Preview:
    """What is known before a benchmark starts.

    Attributes:
        images, captions: those that models are trained on.
        specs: all runs, as they would be executed or re-used; empty if `unknown` says why they are not known.
        finished: keys of those that would be re-used.
        unknown: why no finished run can be named; "" if they are known.
        first: what is made before any run.
        record: the data set as the store has it, where it is here.
        seconds: what stored runs of these conditions took, by model and budget.
        variances: how much stored scores of these data vary; None if no model has two seeds.
    """

    dataset: str
    images: int
    captions: int
    unknown: str = ""
    first: Sequence[str] = ()
    specs: Sequence[RunSpec] = ()
    record: DatasetRecord | None = None
    finished: frozenset[str] = frozenset()
    seconds: Mapping[tuple[str, int], float] = field(default_factory=dict)
    variances: StoredVariances | None = None


def preview(
    benchmark: Benchmark, resolved: Resolved, reporter: Reporter, *, here: bool, machine: str | None
) -> Preview:
    """Look at the data, the caches and the results of a benchmark; of data that are not `here`, the sizes are known.

    What `run_benchmark` would refuse is refused. Stored runs tell the time if they ran on this `machine`; None: on any.
    """
    if here:
        planned = _look(benchmark, resolved, reporter)
    else:
        size = KNOWN_SIZES[benchmark.experiment.data.annotations]
        recipe = benchmark.preset.recipe
        images = size.train
        if recipe is not None and recipe.restval == "dropped":
            images -= size.restval
        why = f"{benchmark.experiment.data.annotations} is known by its sizes alone"
        planned = Preview(benchmark.experiment.data.annotations, images, round(images * size.captions), why)
    workspace = benchmark.workspace
    if os.path.lexists(workspace.root) and not workspace.root.is_dir():
        raise BenchError(f"the workspace {workspace.root} is not a folder", "name a folder with --workspace")
    if not _has_results(workspace):
        return planned
    with Store(workspace.database, read_only=True) as store:
        specs, notes = reuse_finished_runs(
            planned.specs, store, accept=benchmark.reuses_other_code, rerun=benchmark.rerun
        )
        done = {spec.key for spec in specs if not benchmark.rerun and store.status(spec.key) == "finished"}
        seconds: dict[tuple[str, int], float] = {}
        for budget in benchmark.experiment.budgets:
            preset = benchmark.preset.model_copy(update={"schedule": benchmark.preset.schedule.times(budget)})
            by_model = run_seconds(store, planned.dataset, training_fields(preset), machine)
            seconds |= {(model, budget): mean for model, mean in by_model.items()}
        data = planned.dataset if planned.record is None else planned.record.fingerprint
        variances = stored_variances(store, data, TEST_SPLIT)
    for note in notes:
        reporter.note(note)
    return replace(planned, specs=specs, finished=frozenset(done), seconds=seconds, variances=variances)


def _look(benchmark: Benchmark, resolved: Resolved, reporter: Reporter) -> Preview:
    """What is known of data that are here, or are drawn."""
    workspace = benchmark.workspace
    conditions = resolved.conditions
    regions = benchmark.features.regions
    data = benchmark.experiment.data
    name = data.annotations
    if name in SCENES and data.images is None and not scenes_folder(workspace.cache, SCENES[name]).is_dir():
        size = KNOWN_SIZES[name]
        open_backbone(benchmark.features)  # what it refuses is refused now
        if benchmark.features.graphs is not None:
            check_source(benchmark.features.graphs)
        if regions is not None and not isinstance(regions.source, str):
            check_exists(regions.source)
        drawn = f"{size.train + size.val + size.test:,} pictures drawn, and their features"
        why = "the embedded data are not drawn in this workspace"
        return Preview(name, size.train, round(size.train * size.captions), why, (drawn,))
    dataset, backbone = open_inputs(conditions, workspace, reporter)
    sees = visual_kinds(conditions.data.sees, dataset)
    missing = missing_features(dataset, benchmark.features, backbone, sees=sees, cache_dir=workspace.cache)
    check = partial(check_rows, benchmark, resolved.models, reporter)
    context = open_context(conditions, workspace, reporter, check=check, make=False, opened=(dataset, backbone))
    planned = Preview(dataset.name, *context.counts(), first=missing)
    if missing and regions is not None:
        return replace(planned, unknown="the regions, which identify them, are not in the cache")
    record = context.data.record(context.signature["data"])
    with ExitStack() as stack:
        store = None
        if _has_results(workspace):
            store = stack.enter_context(Store(workspace.database, read_only=True))
        specs = plan(benchmark, resolved, context, reporter, store)
        return replace(planned, specs=choose_jobs(benchmark.executor, specs, context), record=record)


def _has_results(workspace: Workspace) -> bool:
    """Whether there is a database to read, or to tell the error of; `bench run` makes one where there is none."""
    file = sqlite_file(resolve_url(workspace.database))
    try:
        return file is None or bool(file.lstat())
    except (FileNotFoundError, NotADirectoryError):
        return workspace.db is not None and file is not None and not file.absolute().parent.is_dir()
    except (OSError, ValueError):
        return True  # an error of the name
