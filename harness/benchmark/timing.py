"""How long captioning takes: timed at the end of a run, or later where other models train at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from harness.benchmark.context import RunContext
from harness.benchmark.hub_model import HubModel
from harness.benchmark.run_config import RunConfig
from harness.benchmark.saved_model import SavedModel, open_saved
from harness.data.images import load_image
from harness.measure.captioning_costs import Effort, Timed, time_captioning, time_generation, untimed
from harness.utils.plugins import contain_exits
from harness.utils.workspace import Workspace
from results.records import RunSpec
from results.store.rescoring import add_costs, runs_without_cost
from zoo import Captioner, Visual

if TYPE_CHECKING:
    from harness.benchmark.work import Services
    from harness.inference.hub_captioner import HubCaptioner

ROUNDS = 2
"""How often each image is captioned: what rounds differ by is noise, what images differ by is not."""
THREADS = 1
"""On a processor: one image is too little work for more, and the same number on every machine can be compared."""
DEFERRED = "not timed yet: other models trained at the same time; the same command again does it"
OTHER_SEED = "another seed of the model was timed"
"""Seeds of a model hardly differ in time; where training takes seconds, a preset may leave the others out."""
ELSEWHERE = "not timed: its weights are not in this workspace"
"""As of a run that was merged from another workspace, or published."""


def one_image(model: Captioner, context: RunContext) -> Visual:
    """A test image as the model reads it, to measure costs with."""
    return context.source(model.visual).visual([context.data.typical_image()], model.visual).to("cpu")


def timed_images(image_ids: Sequence[int], count: int) -> list[int]:
    """So many of the images, or all where they are fewer: one of each of as many equal stretches, by a fixed seed."""
    count = min(count, len(image_ids))
    random = np.random.default_rng(0)
    edges = [number * len(image_ids) // count for number in range(count + 1)]
    return [image_ids[int(random.integers(first, last))] for first, last in pairwise(edges)]


def time_model(model: Captioner, context: RunContext) -> Timed:
    """How long captioning test images takes, one by one, and what energy; `DEFERRED` while other models may be at work.

    All images are in memory before the first is timed.
    """
    if context.execution.config.jobs != 1:
        return untimed(DEFERRED)
    preset, source = context.preset, context.source(model.visual)
    image_ids = [sample.image_id for sample in context.data.evaluated["test"]]
    return time_captioning(
        model,
        [source.visual([image_id], model.visual) for image_id in timed_images(image_ids, preset.latency_repeats)],
        beam_size=context.inputs.decoding.beam_size,
        max_len=context.inputs.decoding.max_len,
        bos=context.inputs.vocabulary.bos,
        eos=context.inputs.vocabulary.eos,
        effort=Effort(ROUNDS, preset.energy_seconds),
        threads=THREADS,
        precision=context.execution.precision,
    )


def time_deferred(specs: Sequence[RunSpec], services: Services) -> None:
    """Time what was `DEFERRED` of these runs, one after the other, while nothing else runs here.

    A run whose weights are not here is passed over, with that reason.
    """
    store, workspace, reporter = services.store, services.workspace, services.reporter
    keys = runs_without_cost(store, DEFERRED)
    by_model: dict[str, list[RunSpec]] = {}
    for spec in (spec for spec in specs if spec.key in keys):
        # In the workspace, or perhaps in its remote storage.
        if spec.kind == "hub" or workspace.remote is not None or weights_folder(spec, workspace).is_dir():
            by_model.setdefault(spec.model, []).append(spec)
        else:
            add_costs(store, spec.key, untimed(ELSEWHERE).costs, {})
    if not by_model:
        return
    left = [spec for runs in by_model.values() for spec in runs]
    config = RunConfig.of(left[0])
    seeds = config.opening.preset.timed_seeds or len(left)
    chosen = [spec for runs in by_model.values() for spec in runs[:seeds]]
    where = services.environment(torch.device(config.opening.device))  # another machine may have trained them
    with reporter.task("timing captions", len(chosen)) as task:
        for spec in chosen:
            timed = _time_stored(spec, services)
            add_costs(store, spec.key, timed.costs, {"measurement": {**where, **timed.state}})
            task.advance(detail=spec.model)
    for spec in (spec for runs in by_model.values() for spec in runs[seeds:]):
        add_costs(store, spec.key, untimed(OTHER_SEED).costs, {})
    reporter.note(f"timed captions of {len(chosen)} models, one at a time")


def weights_folder(spec: RunSpec, workspace: Workspace) -> Path:
    """Where the weights of a run lie: of a stored run that is scored again, in that one's folder."""
    again = spec.kind == "stored" and "members" not in spec.config
    return workspace.run_folder(spec.model if again else spec.key)


def time_hub(captioner: HubCaptioner, context: RunContext) -> Timed:
    """As `time_model`, for a checkpoint of transformers' own interface, from its processor's output to its tokens."""
    if context.execution.config.jobs != 1:
        return untimed(DEFERRED)
    preset, data, device = context.preset, context.data, context.execution.device
    samples = {sample.image_id: sample for sample in data.evaluated["test"]}
    chosen = [samples[image_id] for image_id in timed_images(list(samples), preset.latency_repeats)]
    seen = [captioner.inputs([load_image(data.dataset.path(sample))]) for sample in chosen]
    turns = cycle(seen)

    def work() -> None:
        captioner.generate(next(turns), context.inputs.decoding)

    effort = Effort(ROUNDS, preset.energy_seconds)
    return time_generation(work, len(seen), device, effort=effort, threads=THREADS)


def _time_stored(spec: RunSpec, services: Services) -> Timed:
    folder = weights_folder(spec, services.workspace)
    try:
        config = RunConfig.of(spec)
        alone = replace(config.execution, jobs=1)
        context = services.context(config.model_copy(update={"execution": alone}))
        with contain_exits():
            if spec.kind == "hub":
                captioner = HubModel(**spec.config["hub"]).open(context.execution.device, context.execution.precision)
                return time_hub(captioner, context)
            services.workspace.fetch_run(folder.name)
            return time_model(*open_saved(SavedModel.load(folder), folder, context))
    except Exception as error:  # one model that cannot be opened any more must not keep the others from being timed
        return untimed(str(error) or type(error).__name__)
