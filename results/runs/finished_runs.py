"""Finished runs with their scores and costs, as the queries share them; three SQL queries however many runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, cast

from sqlalchemy import ColumnElement, Connection, RowMapping, or_, select, true

from results.errors import StoreError
from results.records import CodeRecord, Quantity, Role
from results.runs.more_metrics import is_more
from results.statistics.paired import MEANS
from results.store.schema import Cost, DatasetRow, HeldOutScore, ImageInfluences, ImageScores, RunRow, Score

Scores = dict[str, dict[str, dict[str, Quantity]]]
ByImage = dict[int, float]


@dataclass(frozen=True)
class FinishedRun:
    """One finished run; `scores[split][domain][metric]` and `costs[name]` in the order they were recorded in.

    `held_out[split][metric]` as of `SplitResult`. `more[split][metric]` are those of `results.runs.more_metrics`.
    Any field of `environment` may be missing.
    """

    id: int
    key: str
    model: str
    role: Role
    seed: int
    track: str
    code_version: str
    config: dict[str, Any]
    signature: dict[str, str]
    operators: dict[str, Any]
    environment: dict[str, Any]
    code: CodeRecord | None
    finished_at: datetime
    dataset: str
    fingerprint: str
    scores: Scores = field(default_factory=dict)
    held_out: dict[str, dict[str, Quantity]] = field(default_factory=dict)
    more: dict[str, dict[str, Quantity]] = field(default_factory=dict)
    costs: dict[str, Quantity] = field(default_factory=dict)

    @property
    def conditions(self) -> dict[str, str]:
        """The signature, with the track where the signature does not name it."""
        return {"track": self.track, **self.signature}

    @cached_property
    def comparable(self) -> tuple[str, str, frozenset[tuple[str, str]]]:
        """Equal for runs whose scores on a split may be compared.

        Where a results revision was recorded, results do not depend on the release.
        """
        signature = {
            name: value for name, value in self.signature.items() if name != "v" or "rev" not in self.signature
        }
        return self.fingerprint, self.track, frozenset(signature.items())

    @cached_property
    def variant(self) -> dict[str, str]:
        """What tells it from other runs of its model: dotted configuration fields but seeds, and the code version.

        What only describes is none of it: the model's card, how the preset deviates from the one that ships, how many
        images were captioned, the trials that tuned values were chosen from, and a digest of the rest. Where the code
        was recorded, the release says nothing more.
        """
        described = {"card", "shipped_preset", "evaluated", "settings", "tuning"}
        config = {name: value for name, value in self.config.items() if name not in described}
        made_by = {"code": self.code.model or ""} if self.code else {"code_version": self.code_version}
        return {**dict(_flat(config, "")), **made_by}


def dataset_matches(dataset: str | None) -> ColumnElement[bool]:
    """The condition that a data set is meant: by fingerprint or by name; None means every one."""
    return true() if dataset is None else or_(DatasetRow.fingerprint == dataset, DatasetRow.name == dataset)


def one_dataset(connection: Connection, dataset: str) -> int:
    """The id of the one data set of this fingerprint or name; StoreError where there is none or the name is shared."""
    query = select(DatasetRow.id, DatasetRow.fingerprint).where(dataset_matches(dataset))
    found = connection.execute(query.order_by(DatasetRow.id)).all()
    exact = [dataset_id for dataset_id, fingerprint in found if fingerprint == dataset]
    if exact or len(found) == 1:
        return exact[0] if exact else found[0][0]
    if found:
        raise StoreError(
            f"the name {dataset!r} is shared by {len(found)} data sets",
            "name one by its fingerprint: " + ", ".join(fingerprint for _, fingerprint in found),
        )
    names = connection.scalars(select(DatasetRow.name))
    known = ", ".join(sorted(set(names))) or "none yet"
    raise StoreError(f"no data set {dataset!r} in the results database", f"it knows: {known}")


def finished_runs(
    connection: Connection, dataset: str | None = None, *, model: str | None = None, seed: int | None = None
) -> list[FinishedRun]:
    """Every finished run of a data set (fingerprint or name; None: all), in the order of planning.

    Args:
        model: its runs alone.
        seed: runs with it alone.
    """
    chosen = (
        RunRow.status == "finished",
        dataset_matches(dataset),
        true() if model is None else RunRow.model == model,
        true() if seed is None else RunRow.seed == seed,
    )
    query = select(
        RunRow.id,
        RunRow.key,
        RunRow.model,
        RunRow.role,
        RunRow.seed,
        RunRow.track,
        RunRow.code_version,
        RunRow.config,
        RunRow.signature,
        RunRow.operators,
        RunRow.environment,
        RunRow.code,
        RunRow.finished_at,
        DatasetRow.name.label("dataset"),
        DatasetRow.fingerprint,
    )
    rows = connection.execute(query.join(DatasetRow).where(*chosen).order_by(RunRow.id)).mappings()
    runs = {row["id"]: _finished_run(row) for row in rows}

    # Tens of thousands of rows: as tuples they are read in half the time that named fields take.
    of_score = (Score.split, Score.domain, Score.metric, *quantity_columns(Score))
    scored = select(Score.run_id, *of_score).join(RunRow).join(DatasetRow).where(*chosen).order_by(Score.id)
    for run_id, split, domain, metric, *measured in connection.execute(scored):
        if is_more(metric):
            runs[run_id].more.setdefault(split, {})[metric] = Quantity(*measured)
        else:
            runs[run_id].scores.setdefault(split, {}).setdefault(domain, {})[metric] = Quantity(*measured)
    of_held_out = (HeldOutScore.split, HeldOutScore.metric, HeldOutScore.value, HeldOutScore.reason)
    held_out = select(HeldOutScore.run_id, *of_held_out).join(RunRow).join(DatasetRow).where(*chosen)
    for run_id, split, metric, value, reason in connection.execute(
        held_out.order_by(HeldOutScore.split, HeldOutScore.metric)
    ):
        runs[run_id].held_out.setdefault(split, {})[metric] = Quantity(value, reason)
    spent = select(Cost.run_id, Cost.name, *quantity_columns(Cost)).join(RunRow).join(DatasetRow).where(*chosen)
    for run_id, name, *measured in connection.execute(spent.order_by(Cost.id)):
        runs[run_id].costs[name] = Quantity(*measured)
    return list(runs.values())


def _finished_run(row: RowMapping) -> FinishedRun:
    """A run without its scores."""
    return FinishedRun(**{**cast("Any", dict(row)), "code": code_of(row["code"])})


def image_scores(connection: Connection, runs: Sequence[FinishedRun], metric: str) -> dict[tuple[int, str], ByImage]:
    """Scores of single images by run id and split; empty for runs and splits that have none."""
    return _by_image(connection, ImageScores, runs, metric)


def scores_to_test(connection: Connection, runs: Sequence[FinishedRun], metric: str) -> dict[tuple[int, str], ByImage]:
    """Numbers of single images whose mean is the score, by run id and split; empty where there are none.

    Scores of `results.statistics.paired.MEANS`, influences on every other metric (`SplitResult.influences`).
    """
    return _by_image(connection, ImageScores if metric in MEANS else ImageInfluences, runs, metric)


def _by_image(
    connection: Connection, table: type[ImageScores | ImageInfluences], runs: Sequence[FinishedRun], metric: str
) -> dict[tuple[int, str], ByImage]:
    found: dict[tuple[int, str], ByImage] = {(run.id, split): {} for run in runs for split in run.scores}
    wanted = (table.run_id.in_([run.id for run in runs]), table.metric == metric)
    for run_id, split, scores in connection.execute(select(table.run_id, table.split, table.scores).where(*wanted)):
        found[run_id, split] = scores
    return found


def code_of(stored: dict[str, Any] | None) -> CodeRecord | None:
    """The record in a row's `code`; None where the release that wrote it did not record any."""
    return None if stored is None else CodeRecord(**stored)


def quantity_columns(table: type[Score | Cost]) -> tuple[Any, ...]:
    """The columns of a `Quantity`, in its order."""
    return table.value, table.reason, table.unit, table.low, table.high


def _flat(config: dict[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    """Dotted paths to JSON values; fields named "seed" are left out at every depth."""
    for name, value in config.items():
        if name == "seed":
            continue
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", json.dumps(value, sort_keys=True, ensure_ascii=False)
