"""Images with every model's caption of them, the hardest first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from sqlalchemy import select

from results.metrics import RANKING_METRIC
from results.records import Role
from results.runs.facts import KINDS, fact_counts, states_falsely
from results.runs.leaderboard import rows_of
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
        ciders = image_scores(connection, runs, split, RANKING_METRIC)
        facts = [image_scores(connection, runs, split, fact_counts(kind)) for kind in KINDS]
        in_split = select(Image).join(DatasetRow).where(DatasetRow.fingerprint == fingerprint, Image.split == split)
        images = connection.execute(in_split).mappings().all()
        query = select(Caption.run_id, Caption.image_id, Caption.caption)
        query = query.where(Caption.run_id.in_([run.id for run in runs]), Caption.split == split)
        captions = {(run_id, image_id): caption for run_id, image_id, caption in connection.execute(query)}
    cider_of = {run.id: ciders.by_image(run.id) for run in runs}
    wrong: dict[tuple[int, int], int] = {}
    for bit, counts in enumerate(facts):
        for run in runs:
            for image_id, packed_counts in counts.by_image(run.id).items():
                shown_caption = (run.id, image_id)
                wrong[shown_caption] = wrong.get(shown_caption, 0) | (states_falsely(packed_counts) << bit)
    items = []
    for image in images:
        image_id = image["image_id"]
        of_models = [cider_of[run.id][image_id] for run in runs if run.role == "model" and image_id in cider_of[run.id]]
        shown_captions = tuple(
            GalleryCaption(
                *(run.model, run.role, run.key, captions[run.id, image_id]),
                cider=cider_of[run.id].get(image_id),
                wrong=wrong.get((run.id, image_id)),
            )
            for run in runs
            if (run.id, image_id) in captions
        )
        references = tuple(image["references"])
        mean = fmean(of_models) if of_models else None
        items.append(GalleryItem(image_id, image["file"], image["domain"], references, shown_captions, mean))
    return sorted(items, key=lambda item: (item.mean_cider is None, item.mean_cider or 0.0, item.image_id))


def _shown(runs: Sequence[Run], split: str) -> list[Run]:
    """The first seed of every row that captioned the split: models by CIDEr-D, then references by name."""
    firsts = [row[0] for row in rows_of(run for run in runs if split in run.scores.splits)]

    def order(run: Run) -> tuple[bool, float, str]:
        score = run.scores.get(split, RANKING_METRIC)
        value = score.value if score is not None and run.role == "model" else None
        return run.role == "reference", -(value or 0.0), run.model

    return sorted(firsts, key=order)
