"""Snapshots of finished runs for comparisons: conditions, scores and influences of images, captions, losses, costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from typing import Any

from sqlalchemy import select

from results.errors import StoreError
from results.records import ImageRecord
from results.runs.finished_runs import ByImage, FinishedRun, finished_runs
from results.runs.more_metrics import is_more
from results.store.schema import Caption, DatasetRow, Epoch, Image, ImageInfluences, ImageScores, RunRow
from results.store.store import Store


@dataclass(slots=True)
class RunSnapshot:
    """One finished run; losses by stage and epoch.

    `by_image[split][metric]`, `influences[split][metric]` and `captions[split]` are by image id.
    """

    run: FinishedRun
    environment: dict[str, Any]
    finished_at: datetime
    losses: list[tuple[int, int, float]] = field(default_factory=list)
    by_image: dict[str, dict[str, ByImage]] = field(default_factory=dict)
    influences: dict[str, dict[str, ByImage]] = field(default_factory=dict)
    captions: dict[str, dict[int, str]] = field(default_factory=dict)

    @property
    def code(self) -> str:
        """The release and the commit that ran, as far as they are known."""
        commit, dash, changed = str(self.environment.get("commit") or "").partition("-")
        return f"{self.run.code_version} {commit[:12]}{dash}{changed}".strip()


def run_snapshots(store: Store, keys: Sequence[str] | None = None) -> list[RunSnapshot]:
    """The finished runs of these keys (None: all), in the order of planning.

    Raises:
        StoreError: a key that was never planned, or whose run has not finished.
    """
    with store.reading() as connection:
        runs = [run for run in finished_runs(connection) if keys is None or run.key in keys]
        for key in (key for key in keys or () if key not in {run.key for run in runs}):
            status = connection.scalar(select(RunRow.status).where(RunRow.key == key))
            raise StoreError(
                f"run {key} has not finished: it is {status}" if status else f"no run {key} in the results database",
                _nearest(key, connection.scalars(select(RunRow.key).where(RunRow.status == "finished")).all()),
            )
        ids = [run.id for run in runs]
        began = select(RunRow.id, RunRow.environment, RunRow.finished_at).where(RunRow.id.in_(ids))
        about = {run_id: (environment, at) for run_id, environment, at in connection.execute(began)}
        found = {run.id: RunSnapshot(run, *about[run.id]) for run in runs}
        epochs = select(Epoch.run_id, Epoch.stage, Epoch.epoch, Epoch.train_loss).where(Epoch.run_id.in_(ids))
        for run_id, stage, epoch, loss in connection.execute(epochs.order_by(Epoch.run_id, Epoch.stage, Epoch.epoch)):
            found[run_id].losses.append((stage, epoch, loss))
        scored = select(ImageScores.run_id, ImageScores.split, ImageScores.metric, ImageScores.scores)
        for run_id, split, metric, scores in connection.execute(scored.where(ImageScores.run_id.in_(ids))):
            if not is_more(metric):
                found[run_id].by_image.setdefault(split, {})[metric] = scores
        weighed = select(ImageInfluences.run_id, ImageInfluences.split, ImageInfluences.metric, ImageInfluences.scores)
        for run_id, split, metric, values in connection.execute(weighed.where(ImageInfluences.run_id.in_(ids))):
            found[run_id].influences.setdefault(split, {})[metric] = values
        captioned = select(Caption.run_id, Caption.split, Caption.image_id, Caption.caption)
        for run_id, split, image_id, caption in connection.execute(captioned.where(Caption.run_id.in_(ids))):
            found[run_id].captions.setdefault(split, {})[image_id] = caption
    return list(found.values())


def run_key(store: Store, name: str) -> str:
    """The key of a model's only finished run; a name of no model is taken for a key.

    Raises:
        StoreError: the model has several, with their keys, or none that has finished.
    """
    with store.reading() as connection:
        of_model = select(RunRow.key, RunRow.status).where(RunRow.model == name).order_by(RunRow.id)
        planned = dict(connection.execute(of_model).all())
        finished = connection.scalars(select(RunRow.key).where(RunRow.status == "finished")).all()
    keys = [key for key, status in planned.items() if status == "finished"]
    if len(keys) > 1:
        raise StoreError(f"{name} has {len(keys)} finished runs", f"name one of them: {', '.join(keys[:10])}")
    if planned and not keys:
        statuses = ", ".join(dict.fromkeys(planned.values()))
        raise StoreError(f"no run of {name} has finished: {statuses}", _nearest(name, finished))
    return keys[0] if keys else name


def evaluated_images(store: Store) -> dict[str, dict[int, ImageRecord]]:
    """The images of every data set's evaluated splits, by the data set's fingerprint and image id."""
    found: dict[str, dict[int, ImageRecord]] = {}
    query = select(Image, DatasetRow.fingerprint).join(DatasetRow)
    with store.reading() as connection:
        for row in connection.execute(query).mappings():
            image = ImageRecord(row["image_id"], row["file"], row["split"], tuple(row["references"]), row["domain"])
            found.setdefault(row["fingerprint"], {})[image.image_id] = image
    return found


def _nearest(key: str, finished: Sequence[str]) -> str:
    if not finished:
        return "make some with: bench run --models all"
    return f"finished are, among others: {', '.join(get_close_matches(key, finished, n=3, cutoff=0))}"
