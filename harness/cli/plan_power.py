"""`bench plan --detect`: how many seeds and images tell a difference of two architectures apart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness.cli.inputs import open_results
from harness.utils.errors import BenchError

if TYPE_CHECKING:
    from results.runs.planning import StoredVariances

SEEDS: Final = (2, 3, 5, 10, 20)
MORE_IMAGES: Final = 4
"""How many times the images the second column is for."""
MIN_POINTS, MAX_POINTS = 0.01, 1000.0
"""The last digit of CIDEr-D points that is shown, and the highest score that there is."""
SPLIT: Final = "test"
_HINT: Final = "state both: --seed-deviation 5 --image-deviation 40; or run two models with --seeds 3 first"


def show_power(
    points: float, seed: float | None, image: float | None, data: str, workspace: Path, db: str | None
) -> None:
    """Print what numbers of seeds detect, from deviations in points that are stated or, where None, stored.

    Raises:
        BenchError: a number makes no sense, or a deviation is neither stated nor stored.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from harness.data.dataset import SCENES
    from harness.data.scenes.dataset import ScenesConfig
    from harness.measure.estimate import KNOWN
    from results.statistics.power import detectable, seed_deviation_over

    stated = {"--detect": points, "--seed-deviation": seed, "--image-deviation": image}
    for option, value in stated.items():
        if value is not None and not MIN_POINTS <= value <= MAX_POINTS:
            raise BenchError(
                f"{option} {value:g} is not between {MIN_POINTS:g} and {MAX_POINTS:g}",
                f"give CIDEr-D points: {option} 1.0",
            )
    interaction = None
    if seed is not None and image is not None:
        # Known sizes count all evaluated splits, of which the scenes have two.
        images = ScenesConfig().test if data == SCENES else KNOWN[data].test
        sources = [f"Seeds deviate by {seed:g}, images by {image:g} points: as stated."]
    else:
        stored = _stored(data, workspace, db)
        images, sources, interaction = stored.images, _sources(stored, seed, image), stored.interaction_deviation
        seed = stored.seed_deviation if seed is None else seed
        image = stored.image_deviation if image is None else image
        if image is None:
            raise BenchError(
                "how much images vary is not known: one model alone has several stored seeds",
                "state it: --image-deviation 40; or run another model with --seeds 3 first",
            )
    console = Console(highlight=False, soft_wrap=True)
    columns = {images: seed}
    if interaction is not None:
        more = MORE_IMAGES * images
        columns[more] = seed_deviation_over(more, seed, interaction, images)
    table = Table("Seeds of each model", *(f"{many:,} images" for many in columns), box=box.SIMPLE_HEAD, pad_edge=False)
    for column in table.columns:
        column.justify = "right"
    for seeds in SEEDS:
        found = (detectable(seeds, many, deviation, image) for many, deviation in columns.items())
        table.add_row(f"{seeds}", *(f"{size:,.2f}" for size in found))
    console.print("The smallest difference of two models that is found four times in five,")
    console.print(f"in CIDEr-D points; two-sided 5 %; {data} {SPLIT} has {images:,} images:")
    console.print(table)
    for line in (*_verdict(points, images, seed, image), *sources):
        console.print(line)


def _verdict(points: float, images: int, seed: float, image: float) -> list[str]:
    from results.statistics.power import MAX_SEEDS, detectable_at_best, least_images, least_seeds

    what = "1 point" if points == 1 else f"{points:g} points"
    needed = least_seeds(points, images, seed, image)
    if needed is not None:
        return [f"{what}: {needed:,} seeds of each model or more."]
    best = detectable_at_best(images, image)
    if best <= points:
        return [f"{what}: more than {MAX_SEEDS:,} seeds of each model."]
    return [
        f"{what}: not with any number of seeds:",
        f"{images:,} images suffice only for {best:,.2f} points; {least_images(points, image):,} would be needed.",
    ]


def _stored(data: str, workspace: Path, db: str | None) -> StoredVariances:
    from results.runs.planning import stored_variances

    try:
        with open_results(workspace, db) as store:
            found = stored_variances(store, data, SPLIT)
    except BenchError as error:
        raise BenchError(str(error), _HINT) from error
    if found is None:
        raise BenchError(
            f"no model in the results database has two seeds on {data} {SPLIT}: how much they vary is not known",
            _HINT,
        )
    return found


def _sources(stored: StoredVariances, seed: float | None, image: float | None) -> list[str]:
    """Where each deviation comes from, and how well stored seeds tell theirs."""
    from results.statistics.power import deviation_bounds

    models = f"{stored.models} stored model{'s' * (stored.models > 1)}, {stored.runs} runs"
    low, high = deviation_bounds(stored.seed_deviation, stored.degrees)
    return [
        f"Seeds deviate by {stored.seed_deviation:.2f} points (95 %: {low:.2f} to {high:.2f}): {models}."
        if seed is None
        else f"Seeds deviate by {seed:g} points: as stated.",
        f"Seed and image together deviate by {stored.interaction_deviation:.2f} points; this part falls with images.",
        f"Images deviate by {stored.image_deviation or 0.0:.2f} points: {models}."
        if image is None
        else f"Images deviate by {image:g} points: as stated.",
    ]
