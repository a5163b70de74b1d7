"""The further metrics of `bench evaluate --more`: from its options to a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.utils.errors import BenchError

if TYPE_CHECKING:
    from harness.data.formats import References
    from harness.metrics.more.measure import MoreSettings
    from harness.metrics.more.measured import Measured


def refuse_without_more(more: str, **options: object) -> None:
    """BenchError where an option is given that only `more` reads."""
    given = [f"--{name}" for name, value in options.items() if value is not None]
    if given:
        raise BenchError(f"{', '.join(given)}: read by {more} alone", f"add {more}, or leave it out")


def measure(
    settings: MoreSettings,
    file: Path,
    wanted: References,
    references: Mapping[int, Sequence[str]],
    captions: Mapping[int, str],
    *,
    images: Path | None,
    sets: Path | None,
) -> Measured:
    """Every further metric of the captions that are scored.

    Args:
        file: of the references; the embedded data set's tells what its images show.
        images: the folder of the images.
        sets: several captions of each image.

    Raises:
        BenchError: a file or folder cannot be used, or `sets` lacks images.
    """
    from harness.data.formats import read_caption_sets
    from harness.metrics.chair.objects import objects_of_scenes
    from harness.metrics.more.measure import Captioned, MoreEvaluator

    several: dict[int, list[str]] = {} if sets is None else read_caption_sets(sets)
    if sets is not None and (absent := [image_id for image_id in references if image_id not in several]):
        raise BenchError(
            f"--sets {sets} has no captions of {len(absent)} images ({absent[0]} first)",
            "give captions of every image that is scored",
        )
    system = Captioned(
        {image_id: captions[image_id] for image_id in references},
        references,
        {image_id: several[image_id] for image_id in references if several},
        {} if images is None else _files(images, wanted, references),
    )
    objects = None if settings.instances else objects_of_scenes(file)
    return MoreEvaluator(settings, objects).measure(system)


def print_more(found: Measured) -> None:
    """A line a metric: its value with the interval, which direction is better, and what it measures; then reasons."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from results.runs.more_metrics import BETTER, MORE_METRICS, base_name, depends_on, more_order

    table = Table(title="More metrics", title_justify="left")
    table.add_column("metric", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("95 % interval", justify="right", no_wrap=True)
    table.add_column("better", no_wrap=True)
    table.add_column("what it is")
    for name in more_order(found.values):
        quantity, metric = found.values[name], MORE_METRICS[base_name(name)]
        shown = [
            f"{100 * each:.2f}" if metric.share else f"{each:.4g}"
            for each in (quantity.value, quantity.low, quantity.high)
            if each is not None
        ]
        value, *bounds = shown or ["-"]
        table.add_row(base_name(name), value, "–".join(bounds), BETTER[metric.better], metric.meaning)
    console = Console(highlight=False)
    console.print(table)
    by_model: dict[str, list[str]] = {}
    for name in more_order(found.values):
        by_model.setdefault(depends_on(name), []).append(base_name(name))
    for model, names in by_model.items():
        if model:
            console.print(f"{', '.join(names)} by {escape(model)}", soft_wrap=True)
    for name in more_order(found.values):
        if (reason := found.values[name].reason) is not None:
            console.print(f"{escape(name)}: {escape(reason)}", soft_wrap=True)
    console.print("fractions x100, words and vocabulary as counted")


def to_json(found: Measured) -> dict[str, Any]:
    """What scores.json holds of them: values as `scores` does, and why some are null."""
    intervals = {name: [each.low, each.high] for name, each in found.values.items() if each.low is not None}
    return {
        "more": {name: each.value for name, each in found.values.items()},
        "more_reasons": {name: each.reason for name, each in found.values.items() if each.value is None},
        "more_intervals": intervals,
        "more_per_image": {
            name: {str(image_id): value for image_id, value in by_image.items()}
            for name, by_image in found.per_image.items()
        },
    }


def _files(folder: Path, wanted: References, images: Mapping[int, object]) -> dict[int, Path]:
    """The files of images below a folder, those that the references name."""
    from harness.data.karpathy import PicturePaths, RefusedPath

    if not folder.is_dir():
        raise BenchError(f"--images {folder} is no folder", "name the folder of the images")
    paths = PicturePaths(folder.resolve())
    try:
        return {image_id: paths.root / paths.claim(wanted.files.get(image_id), None, image_id) for image_id in images}
    except RefusedPath as error:
        raise BenchError(f"--images {folder}: {error}", "give references that name a file for each image") from error
