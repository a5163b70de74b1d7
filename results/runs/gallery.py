"""Images with every model's caption of them, the hardest first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from sqlalchemy import select

from results.records import Role
from results.runs.facts import KINDS, fact_counts, states_falsely
from results.runs.leaderboard import RANKING_METRIC, rows_of
from results.runs.reading import image_scores
from results.runs.run import Run
from results.store.schema import Caption, DatasetRow, Image
from results.store.store import Store


@dataclass(frozen=True, slots=True)
class GalleryCaption:
    """One run's caption of one image; `cider` is its CIDEr-D on that image alone, None where it was not scored.

    `wrong` has a bit of each kind of facts (`results.runs.facts.KINDS`) of which it states something false; None where
    the image's scene is not known.
    """

    model: str
    role: Role
    key: str
    caption: str
    cider: float | None
    wrong: int | None = None


@dataclass(frozen=True, slots=True)
class GalleryItem:
    """One image with its references and the models' captions, in the same order of runs for every image.

    `file` is relative to `DatasetInfo.root`. `mean_cider` is over the captions of role "model", None where no model
    has a score.
    """

    image_id: int
    file: str
    domain: str | None
    references: tuple[str, ...]
    captions: tuple[GalleryCaption, ...]
    mean_cider: float | None


def gallery(store: Store, fingerprint: str, split: str, finished: Iterable[Run]) -> list[GalleryItem]:
    """The images of a split with their references and captions: lowest mean CIDEr-D of the models first, then by id.

    Every row of the leaderboard is there once, by its lowest seed: models by their CIDEr-D, then references.
    `fingerprint` is the data set's; `finished` are the runs.
    """
    runs = _shown([run for run in finished if run.fingerprint == fingerprint], split)
    with store.reading() as connection:
        scores = image_scores(connection, runs, RANKING_METRIC)
        facts = [image_scores(connection, runs, fact_counts(kind)) for kind in KINDS]
        in_split = select(Image).join(DatasetRow).where(DatasetRow.fingerprint == fingerprint, Image.split == split)
        images = {image["image_id"]: image for image in connection.execute(in_split).mappings()}
        said = select(Caption.run_id, Caption.image_id, Caption.caption)
        said = said.where(Caption.run_id.in_([run.id for run in runs]), Caption.split == split)
        captions = {(run_id, image_id): caption for run_id, image_id, caption in connection.execute(said)}
    wrong: dict[tuple[int, int], int] = {}
    for bit, by_run in enumerate(facts):
        for run in runs:
            for image_id, number in by_run[run.id, split].items():
                place = (run.id, image_id)
                wrong[place] = wrong.get(place, 0) | (states_falsely(number) << bit)
    means = {
        image_id: _mean([scores[run.id, split].get(image_id) for run in runs if run.role == "model"])
        for image_id in images
    }
    chosen = sorted(means, key=lambda image_id: (means[image_id] is None, means[image_id] or 0.0, image_id))
    return [
        GalleryItem(
            image_id=image_id,
            file=images[image_id]["file"],
            domain=images[image_id]["domain"],
            references=tuple(images[image_id]["references"]),
            captions=tuple(
                GalleryCaption(
                    model=run.model,
                    role=run.role,
                    key=run.key,
                    caption=captions[run.id, image_id],
                    cider=scores[run.id, split].get(image_id),
                    wrong=wrong.get((run.id, image_id)),
                )
                for run in runs
                if (run.id, image_id) in captions
            ),
            mean_cider=means[image_id],
        )
        for image_id in chosen
    ]


def _shown(runs: Sequence[Run], split: str) -> list[Run]:
    """The first seed of every row that captioned the split: models by CIDEr-D, then references by name."""
    firsts = [row[0] for row in rows_of(run for run in runs if split in run.scores)]

    def order(run: Run) -> tuple[bool, float, str]:
        score = run.scores[split]["overall"].get(RANKING_METRIC)
        value = score.value if score is not None and run.role == "model" else None
        return run.role == "reference", -(value or 0.0), run.model

    return sorted(firsts, key=order)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
