"""What common options name: stored results, registered models, a preset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from harness.config.execution import AUTO
from harness.config.limits import MAX_PROCESSES
from harness.config.model_patterns import needs_no_features, split_patterns
from harness.utils.errors import BenchError
from harness.utils.files import expanded, require_file, require_utf8, shortened
from harness.utils.workspace import Workspace
from results.text import printable

if TYPE_CHECKING:
    from harness.benchmark.tune.study import FindTuned
    from harness.cli.options import RunOptions
    from harness.config.features import FeatureConfig
    from harness.config.preset import Preset
    from harness.data.dataset import Dataset
    from harness.utils.progress import Reporter
    from results.store.store import Store


def open_results(workspace: Path, db: str | None) -> Store:
    """The results of `--workspace` or `--db`, read-only; BenchError where the workspace has none yet."""
    from results.store.store import Store

    place = Workspace(workspace, db)
    if db is None and not Path(place.database).is_file():
        raise BenchError(
            f"no results in the workspace {workspace}: {place.database} does not exist",
            "make some with: bench run --models all; or name a workspace with --workspace DIR",
        )
    return Store(place.database, read_only=True)


def open_split(data: str, images: Path | None, name: str, workspace: Workspace) -> Dataset:
    """The pictures of a data set's split, which lie on this machine."""
    from harness.data.dataset import open_dataset
    from harness.data.verify import require_pictures

    dataset = open_dataset(data, cache_dir=workspace.cache, images=images)
    require_pictures(dataset)
    return replace(dataset, samples=dataset.split(name), fingerprint=f"{dataset.fingerprint} {name}")


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
    """The preset of `--preset` with the changes of `--set`; None where neither is given."""
    from harness.config.load import load_preset

    if preset is None and change:
        raise BenchError("--set changes a preset, but --preset names none", "add --preset small, for example")
    return None if preset is None else load_preset(preset, tuple(change or ()))


def refuse_undecodable(options: RunOptions) -> None:
    """BenchError where a value is no text in UTF-8: a run's configuration is stored as text."""
    for option, value in vars(options).items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, str | Path):
                require_utf8(Path(each), f"--{option.replace('_', '-')}", "runs are stored as text: give another")


@dataclass(frozen=True)
class Changes:
    """The changes of `--set`: of the preset, of the features (`features.NAME=VALUE`), and of the run itself."""

    preset: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    accept_mixed: bool = False

    @classmethod
    def of(cls, changes: Sequence[str]) -> Changes:
        """Sort the values of `--set`; BenchError where `accept_mixed` is neither true nor false."""
        from harness.utils.yaml_value import parse_yaml_value

        preset, features, accept_mixed = [], [], False
        for change in changes:
            path, _, value = change.partition("=")
            if path.startswith("features."):
                features.append(change.removeprefix("features."))
            elif path == "accept_mixed":
                accept_mixed = parse_yaml_value(change, value)
                if not isinstance(accept_mixed, bool):
                    raise BenchError(f"--set {shortened(change)}: true or false is expected", "--set accept_mixed=true")
            else:
                preset.append(change)
        return cls(tuple(preset), tuple(features), accept_mixed)


def chosen_features(given: RunOptions, preset: Preset, changes: Sequence[str] = ()) -> FeatureConfig:
    """The features that models are trained on; on the embedded data the preset's, where no option names others.

    `changes` are those of `--set features.NAME=VALUE`, without `features.`.
    """
    from harness.config.load import change_settings

    features = _image_features(given, preset)
    if not changes:
        return features
    features = change_settings(features, changes, "features")
    if features.sentence_graphs is not None:
        path = expanded(features.sentence_graphs)
        require_file(path, "--set features.sentence_graphs", "its format is in docs/graph_models.md")
        features = features.model_copy(update={"sentence_graphs": path})
    return features


def _image_features(given: RunOptions, preset: Preset) -> FeatureConfig:
    from harness.config.features import feature_config, graph_config, region_config
    from harness.data.dataset import SCENES, check_dataset
    from harness.data.regions.opening import needs_backbone

    named = (given.backbone, given.regions, given.backbone_weights, given.image_size, given.normalisation)
    unnamed = all(value is None for value in named) and not given.backbone_option and given.region_count == "all"
    if given.data == SCENES and unnamed and preset.features is not None:
        if given.graphs is None:
            return preset.features
        regions = preset.features.regions or region_config("boxes", "all")
        return preset.features.model_copy(update={"regions": regions, "graphs": graph_config(given.graphs, regions)})
    check_dataset(given.data, given.images)
    source = given.regions
    if source is None and given.graphs is not None and given.data == SCENES:
        source = "boxes"  # whose objects the graphs are of
    seen = region_config(source, given.region_count)
    related = graph_config(given.graphs, seen)
    without_features = all(map(needs_no_features, split_patterns(given.models)))
    from_pictures = seen is None or needs_backbone(seen.source)
    backbone, settings = given.backbone or "filterbank", tuple(given.backbone_option or ())
    if from_pictures:
        preset.check_backbone(backbone)
    if given.backbone is None and not without_features and given.data != SCENES and from_pictures:
        raise BenchError(
            f"--data {given.data} needs a backbone to extract features with",
            "add --backbone NAME [--backbone-weights FILE], for example --backbone resnet50; "
            "or --backbone filterbank, which needs no weights and sees little",
        )
    sizes = given.image_size, given.normalisation
    return feature_config(backbone, given.backbone_weights, settings, *sizes, seen, related)


def find_tuned(workspace: Workspace, where: Sequence[str]) -> FindTuned | None:
    """What finds the tuned values that `--tuned` names, if it names any; those of the workspace stand alone."""
    from harness.benchmark.tune.study import from_file, from_workspace, one_after_other

    if "workspace" in where:
        if len(where) > 1:
            raise BenchError("--tuned workspace is all that is tuned here: files contradict it", "leave one out")
        return from_workspace(workspace)
    return reduce(one_after_other, map(from_file, where)) if where else None


def number_of_jobs(text: str) -> int:
    """The models at a time that `--jobs` or BENCH_JOBS says; BenchError where it is no number and not `auto`."""
    if text == "auto":
        return AUTO
    if not (text.isdecimal() and len(text) <= 4 and 1 <= int(text) <= MAX_PROCESSES):
        what = f"a positive integer, {MAX_PROCESSES} at most, or 'auto'"
        raise BenchError(f"--jobs {text!r} must be {what}", "write --jobs 2, or --jobs auto")
    return int(text)


def positive_integers(text: str, option: str, most: int) -> tuple[int, ...]:
    """The numbers of a comma-separated list, as `1,16,64`; BenchError where one is not between 1 and `most`."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if not found or min(found) < 1 or max(found) > most:
        what = f"a list of positive integers of {most} at most"
        raise BenchError(f"{option} {shortened(text)!r} is not {what}", f"for example {option} 1,16")
    return found
