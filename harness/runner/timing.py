"""How long captioning takes: timed at the end of a run, or later where other models train at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from harness.measure.captioning_costs import Effort, Timed, time_captioning
from harness.measure.energy import missing_energy
from harness.measure.environment import describe_environment
from harness.measure.latency import missing_latency
from harness.runner.context import Conditions
from harness.runner.saved_model import SavedModel, open_run
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results import Store
from results.db.recosting import add_costs, runs_without_cost
from results.records import RunSpec
from zoo import Captioner, Visual

ROUNDS = 2
"""How often each image is captioned: what rounds differ by is noise, what images differ by is not."""
THREADS = 1
"""On a processor: one image is too little work for more, and the same number on every machine can be compared."""
DEFERRED = "not timed yet: other models trained at the same time; the same command again does it"


def one_image(model: Captioner, conditions: Conditions) -> Visual:
    """A test image as the model sees it, to measure costs with."""
    return conditions.source(model.visual).visual([conditions.typical_image()], model.visual)


def timed_images(image_ids: Sequence[int], count: int) -> list[int]:
    """So many of the images, or all where they are fewer: one of each of as many equal stretches, by a fixed seed."""
    count = min(count, len(image_ids))
    random = np.random.default_rng(0)
    edges = [number * len(image_ids) // count for number in range(count + 1)]
    return [image_ids[int(random.integers(first, last))] for first, last in pairwise(edges)]


def time_model(model: Captioner, conditions: Conditions) -> Timed:
    """How long captioning test images takes, one by one, and what energy; `DEFERRED` while other models may be at work.

    All images are in memory before the first is timed.
    """
    if conditions.machine.jobs != 1:
        return _untimed(DEFERRED)
    preset, source = conditions.preset, conditions.source(model.visual)
    image_ids = [sample.image_id for sample in conditions.evaluated["test"]]
    return time_captioning(
        model,
        [source.visual([image_id], model.visual) for image_id in timed_images(image_ids, preset.latency_repeats)],
        beam_size=preset.decoding.beam_size,
        max_len=preset.decoding.max_len,
        bos=conditions.vocabulary.bos,
        eos=conditions.vocabulary.eos,
        effort=Effort(ROUNDS, preset.energy_seconds),
        threads=THREADS,
        precision=conditions.precision,
    )


def time_deferred(
    specs: Sequence[RunSpec], conditions: Conditions, workspace: Workspace, store: Store, reporter: Reporter
) -> None:
    """Time what was `DEFERRED` of these specs, one after the other, while nothing else is at work here."""
    keys = runs_without_cost(store, DEFERRED)
    left = [spec for spec in specs if spec.key in keys]
    if not left:
        return
    where = describe_environment(conditions.device)  # another machine may have trained them
    alone = replace(conditions, machine=replace(conditions.machine, jobs=1))
    with reporter.task("timing captions", len(left)) as task:
        for spec in left:
            timed = _time_stored(workspace.run_folder(spec.model if "stored" in spec.config else spec.key), alone)
            add_costs(store, spec.key, timed.costs, {"measurement": where | timed.state})
            task.advance(detail=spec.model)
    reporter.note(f"timed captions of {len(left)} models, one at a time")


def _time_stored(folder: Path, conditions: Conditions) -> Timed:
    try:
        return time_model(*open_run(SavedModel.load(folder), folder, conditions))
    except Exception as error:  # one model that cannot be opened any more must not keep the others from being timed
        return _untimed(str(error) or type(error).__name__)


def _untimed(reason: str) -> Timed:
    return Timed(missing_latency(reason) | missing_energy(reason))
