"""What common options name: stored results, registered models, a preset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from harness.config.execution import AUTO
from harness.config.limits import MAX_PROCESSES
from harness.config.model_patterns import needs_no_features
from harness.utils.errors import BenchError
from harness.utils.files import absolute, expanded, require_file, shortened
from harness.utils.workspace import Workspace
from results.text import printable

if TYPE_CHECKING:
    from harness.benchmark.tune.study import FindTuned
    from harness.config.experiment import Experiment
    from harness.config.features import FeatureConfig
    from harness.config.preset import Preset
    from harness.data.dataset import Dataset
    from harness.utils.progress import Reporter
    from results.store.store import Store


def open_results(workspace: Path, db: str | None) -> Store:
    """The results of `--workspace` or `--db`, read-only; BenchError if the workspace has none yet."""
    return Workspace(workspace, db).open_results()


def open_split(data: str, images: Path | None, name: str, workspace: Workspace, limit: int | None) -> Dataset:
    """The pictures of a data set's split, which lie on this machine; with a limit, the first ones alone."""
    from harness.data.opening import open_dataset
    from harness.data.verify import require_pictures

    dataset = open_dataset(data, cache_dir=workspace.cache, images=images)
    require_pictures(dataset)
    samples = dataset.split(name)
    part = name
    if limit is not None:
        if limit >= len(samples):
            raise BenchError(
                f"--limit {limit}: the split {name} has {len(samples)} images, which are all captioned anyway",
                "leave --limit out, or name a lower number",
            )
        samples = samples[:limit]
        part = f"{name}, first {limit}"
    return replace(dataset, samples=samples, fingerprint=f"{dataset.fingerprint} {part}")


def progress_aside() -> Reporter:
    """Progress on standard error: standard output has what was asked for."""
    from rich.console import Console

    from harness.utils.progress import Reporter

    return Reporter(Console(stderr=True, highlight=False))


@contextmanager
def doing(title: str) -> Iterator[None]:
    """Say on standard error what is done within the block, which may take longer than a second."""
    with progress_aside() as reporter, reporter.step(title):
        yield


def warn(text: str, hint: str) -> None:
    """Print a warning and what to type next on stderr."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True, highlight=False)
    console.print(f"[bold yellow]warning:[/] {escape(printable(text))}", soft_wrap=True)
    console.print(f"[bold]hint:[/] {escape(printable(hint))}", soft_wrap=True)


def optional_preset(preset: str | None, change: list[str] | None) -> Preset | None:
    """The preset of `--preset` with the changes of `--set`; None if neither is given."""
    from harness.config.load import load_preset

    if preset is None and change:
        raise BenchError("--set changes a preset, but --preset names none", "add --preset small, for example")
    return None if preset is None else load_preset(preset, tuple(change or ()))


def chosen_features(experiment: Experiment, preset: Preset) -> FeatureConfig:
    """The features that models are trained on: the experiment's, or on the embedded data the preset's."""
    from harness.config.experiment import PRESET_OF_SCENES
    from harness.config.features import FeatureConfig
    from harness.data.opening import check_dataset
    from harness.data.regions.opening import needs_backbone

    data = experiment.data
    features = experiment.features
    set_fields = set() if features is None else features.model_fields_set
    is_embedded = data.annotations in PRESET_OF_SCENES
    if is_embedded and preset.features is not None and set_fields <= {"graphs", "sentence_graphs"}:
        graph_fields = {name: getattr(features, name) for name in set_fields}
        features = _with_regions_of_graphs(preset.features.model_copy(update=graph_fields), data.annotations)
    else:
        without_features = all(map(needs_no_features, experiment.models))
        _refuse_missing(experiment)
        check_dataset(data.annotations, data.images, trains=not without_features)
        features = features or FeatureConfig()
        features = _with_regions_of_graphs(features, data.annotations)
        from_pictures = features.regions is None or needs_backbone(features.regions.source)
        if from_pictures:
            preset.check_backbone(features.backbone)
        if "backbone" not in set_fields and not without_features and not is_embedded and from_pictures:
            trained = [model for model in experiment.models if not needs_no_features(model)]
            raise BenchError(
                f"--data {data.annotations} needs a backbone to extract features with, for {', '.join(trained)}",
                "add --backbone NAME [--backbone-weights FILE], for example --backbone resnet50; "
                "or --backbone filterbank, which needs no weights and sees little",
            )
    if features.sentence_graphs is not None:
        path = expanded(features.sentence_graphs)
        require_file(path, "features.sentence_graphs", "its format is in docs/graph_models.md")
        features = features.model_copy(update={"sentence_graphs": path})
    return features


def _refuse_missing(experiment: Experiment) -> None:
    """BenchError that names all files and folders of the data and the features that are not here, if several are not.

    One alone is refused where it is opened, with a hint of its own.
    """
    paths: dict[str, str | Path | None] = {"data": experiment.data.annotations, "images": experiment.data.images}
    if experiment.features is not None:
        files = experiment.features.files()
        paths |= {"weights": files.get("weights"), "sentence_graphs": files.get("sentence_graphs")}
    missing = [
        f"{name} at {absolute(expanded(path))}"
        for name, path in paths.items()
        if path is not None and not expanded(path).exists()
    ]
    if len(missing) > 1:
        raise BenchError(
            f"{len(missing)} inputs are missing: {', '.join(missing)}",
            "put them there, or name others with --data, --images and --backbone-weights",
        )


def _with_regions_of_graphs(features: FeatureConfig, data: str) -> FeatureConfig:
    """The features with regions that their graphs are of: on the embedded data boxes, where none are named."""
    from harness.config.experiment import PRESET_OF_SCENES
    from harness.config.features import check_graph_regions, region_config

    graphs = features.graphs
    if graphs is None:
        return features
    if features.regions is None and data in PRESET_OF_SCENES:
        features = features.model_copy(update={"regions": region_config("boxes")})
    check_graph_regions(graphs, features.regions)
    return features


def find_tuned(workspace: Workspace, where: Sequence[str]) -> FindTuned | None:
    """What finds the tuned values that `--tuned` names, if it names any; those of the workspace stand alone."""
    from harness.benchmark.tune.study import combine_tuned, from_file, from_workspace

    if "workspace" in where:
        if len(where) > 1:
            raise BenchError("--tuned workspace is all that is tuned here: files contradict it", "leave one out")
        return from_workspace(workspace)
    return reduce(combine_tuned, map(from_file, where)) if where else None


def number_of_jobs(text: str) -> int:
    """The models at a time that `--jobs` or BENCH_JOBS says; BenchError if it is no number and not `auto`."""
    if text == "auto":
        return AUTO
    if not (text.isdecimal() and len(text) <= 4 and 1 <= int(text) <= MAX_PROCESSES):
        allowed = f"a positive integer, {MAX_PROCESSES} at most, or 'auto'"
        raise BenchError(f"--jobs {text!r} must be {allowed}", "write --jobs 2, or --jobs auto")
    return int(text)


def positive_integers(text: str, option: str, most: int) -> tuple[int, ...]:
    """The numbers of a comma-separated list, as `1,16,64`; BenchError if one is not between 1 and `most`."""
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) < 1 or max(numbers) > most:
        allowed = f"a list of positive integers of {most} at most"
        raise BenchError(f"{option} {shortened(text)!r} is not {allowed}", f"for example {option} 1,16")
    return numbers
