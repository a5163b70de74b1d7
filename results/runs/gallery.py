"""Images with every model's caption of them, the hardest first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from sqlalchemy import Connection, RowMapping, select

from results.runs.finished_runs import FinishedRun, finished_runs, image_scores, one_dataset
from results.runs.leaderboard import RANKING_METRIC, rows_of
from results.runs.views import GalleryCaption, GalleryItem
from results.store.schema import Caption, DatasetRow, Image
from results.store.store import Store

_CHUNK = 1000  # ids a query: databases limit how many values one statement may carry


def gallery(store: Store, dataset: str, split: str, runs: Sequence[FinishedRun] | None = None) -> list[GalleryItem]:
    """The images of a split with their references and captions: lowest mean CIDEr-D of the models first.

    Images of equal score come by id, images without one last. Every row of the leaderboard is there once, by its
    lowest seed: models by their CIDEr-D on the whole split, best first, then references. `dataset` is a fingerprint or
    a name; StoreError where there is none, or several share the name. `runs` are all finished ones, where they have
    been read already.
    """
    with store.reading() as connection:
        dataset_id = one_dataset(connection, dataset)
        fingerprint = connection.scalars(select(DatasetRow.fingerprint).where(DatasetRow.id == dataset_id)).one()
        read = finished_runs(connection, fingerprint) if runs is None else runs
        runs = _shown([run for run in read if run.fingerprint == fingerprint], split)
        scores = image_scores(connection, runs, RANKING_METRIC)
        in_split = (Image.dataset_id == dataset_id, Image.split == split)
        means = {
            image_id: _mean([scores[run.id, split].get(image_id) for run in runs if run.role == "model"])
            for image_id in connection.scalars(select(Image.image_id).where(*in_split))
        }
        chosen = sorted(means, key=lambda image_id: (means[image_id] is None, means[image_id] or 0.0, image_id))
        images = _images(connection, dataset_id, chosen)
        captions = _captions(connection, runs, split, chosen)
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
                    seed=run.seed,
                    key=run.key,
                    caption=captions[run.id, image_id],
                    cider=scores[run.id, split].get(image_id),
                )
                for run in runs
                if (run.id, image_id) in captions
            ),
            mean_cider=means[image_id],
        )
        for image_id in chosen
    ]


def _shown(runs: Sequence[FinishedRun], split: str) -> list[FinishedRun]:
    """The first seed of every row that captioned the split: models by CIDEr-D, then references by name."""
    firsts = [row[0] for row in rows_of(run for run in runs if split in run.scores)]

    def order(run: FinishedRun) -> tuple[bool, float, str]:
        score = run.scores[split]["overall"].get(RANKING_METRIC)
        value = score.value if score is not None and run.role == "model" else None
        return run.role == "reference", -(value or 0.0), run.model

    return sorted(firsts, key=order)


def _images(connection: Connection, dataset_id: int, chosen: Sequence[int]) -> dict[int, RowMapping]:
    images = {}
    for ids in chunks(chosen):
        query = select(Image).where(Image.dataset_id == dataset_id, Image.image_id.in_(ids))
        images.update({image["image_id"]: image for image in connection.execute(query).mappings()})
    return images


def _captions(
    connection: Connection, runs: Sequence[FinishedRun], split: str, chosen: Sequence[int]
) -> dict[tuple[int, int], str]:
    captions = {}
    for ids in chunks(chosen):
        query = select(Caption.run_id, Caption.image_id, Caption.caption).where(
            Caption.run_id.in_([run.id for run in runs]), Caption.split == split, Caption.image_id.in_(ids)
        )
        captions.update({(run_id, image_id): caption for run_id, image_id, caption in connection.execute(query)})
    return captions


def chunks(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """The ids, as many at a time as one statement may carry."""
    return (ids[start : start + _CHUNK] for start in range(0, len(ids), _CHUNK))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
