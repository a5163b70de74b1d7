"""`bench run --more-metrics`: further metrics of finished runs, from the captions that they left in the store."""

from __future__ import annotations

from collections.abc import Sequence

from harness.benchmark.context import BenchmarkData
from harness.metrics.chair import SCENES_FILE, objects_of_scenes
from harness.metrics.more.measure import Captioned, MoreEvaluator, MoreSettings
from harness.utils.progress import Reporter
from results.records import RunSpec, SplitResult
from results.store.rescoring import add_scores, missing_metrics, stored_captions
from results.store.store import Store


def more_evaluator(settings: MoreSettings, data: BenchmarkData, device: str) -> MoreEvaluator:
    """What computes them on this data set.

    Raises:
        BenchError: a file of objects cannot be used, or the data set's own was changed.
    """
    root = data.dataset.root  # of the images, which may have a folder of their own
    file = next((folder / SCENES_FILE for folder in (root, root.parent) if (folder / SCENES_FILE).is_file()), None)
    objects = None if settings.instances or file is None else objects_of_scenes(file)
    return MoreEvaluator(settings, objects, device)


def add_more_metrics(
    specs: Sequence[RunSpec], evaluator: MoreEvaluator, data: BenchmarkData, store: Store, reporter: Reporter
) -> dict[str, str]:
    """Compute and store what the finished runs lack; nothing else of them changes.

    Returns:
        By stored name, why metrics that were asked for are still lacking of some run.
    """
    lacking: dict[str, str] = {}
    left = {spec.key: missing_metrics(store, spec.key, evaluator.names()) for spec in specs}
    left = {key: splits for key, splits in left.items() if splits}
    by_key = {spec.key: spec for spec in specs}
    with reporter.task("more metrics", len(left)) as task:
        for key, splits in left.items():
            captions = stored_captions(store, key)
            results = [
                _measured(by_key[key], split, captions[split], evaluator, data)
                for split in splits
                if split in data.evaluated
            ]
            add_scores(store, key, results)
            for result in results:
                lacking |= evaluator.settings.lacking(result.scores["overall"])
            task.advance(1)
    return lacking


def _measured(
    spec: RunSpec, split: str, captions: dict[int, str], evaluator: MoreEvaluator, data: BenchmarkData
) -> SplitResult:
    """The metrics of one split; people's are the first references against the others, and all of them as a set."""
    samples = {sample.image_id: sample for sample in data.evaluated[split] if sample.image_id in captions}
    everything = {image_id: samples[image_id].captions for image_id in captions}
    people = spec.model == "human"
    system = Captioned(
        captions,
        {image_id: texts[1:] if people else texts for image_id, texts in everything.items()},
        everything if people else {},
        {image_id: data.dataset.path(sample) for image_id, sample in samples.items()},
    )
    found = evaluator.measure(system)
    return SplitResult(split, captions, {"overall": found.values}, found.per_image)
