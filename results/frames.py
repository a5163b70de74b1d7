"""Results as pandas data frames, for notebooks and scripts: `results.open("workspace").leaderboard()`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pandas as pd
from sqlalchemy import URL, Connection, Select, and_, select, type_coerce

from results.costs import with_unit
from results.errors import StoreError
from results.metrics import RANKING_METRIC, is_more, more_metric_info
from results.published.scores import nearest, told_by_card
from results.runs.facts import is_fact
from results.runs.leaderboard import Group, Row, leaderboard
from results.runs.reading import finished
from results.runs.run import Run
from results.runs.standings import RankingOptions
from results.signature import format_fields, format_signature
from results.store.engine import resolve_url, sqlite_file
from results.store.schema import (
    Base,
    Caption,
    Cost,
    DatasetRow,
    Epoch,
    HeldOutScore,
    Image,
    ImageScores,
    RunRow,
    Score,
    ScoreArrays,
)
from results.store.store import Store

Rows = Sequence[Sequence[Any]]

IDENTITY: Final = {"run": "category", "model": "category", "role": "category", "seed": "int64", "dataset": "category"}
CONDITIONS: Final = dict.fromkeys(("track", "fingerprint", "signature", "code_model", "code_revision"), "category")


def open(workspace_or_database: str | Path | URL) -> Results:
    """The results in a workspace's folder, a SQLite file or a database named by its SQLAlchemy URL, for reading alone.

    Raises:
        StoreError: there are none, or an older captionbench wrote them; the hint says what to type.
    """
    url = resolve_url(workspace_or_database)
    folder = sqlite_file(url)
    if folder is None or not folder.is_dir():
        return Results(Store(url, read_only=True))
    if not (folder / "bench.sqlite").is_file():
        raise StoreError(
            f"no results in the folder {folder}: it has no bench.sqlite",
            f"make some with: bench run --models all --workspace {folder}; or name another workspace, or a database",
        )
    return Results(Store(folder / "bench.sqlite", read_only=True))


class Results:
    """What a results database holds, as data frames. Each call reads the database anew.

    Use it in a `with` statement, or `close` it at the end. Scores are times 100, as papers print them. What was not
    measured is NaN, and `scores` and `costs` say why. A `split` or `metric` that no result is of raises StoreError,
    with those that there are. Without any result, frames have no rows, and columns of the same types.

    Rows of a run, in all frames but the leaderboard, begin with

    - run (category): key of the run
    - model (category): name of the model
    - role (category): "model", or "reference" for rows that are not ranked, such as human
    - seed (int64): seed of training
    - dataset (category): name of the data set

    and end with

    - track (category): "controlled", or "paper" for models trained as their papers say; in the leaderboard also
      "systems", of those that were not trained here
    - fingerprint (category): digest of the data set
    - signature (category): what scores depend on besides model and seed; runs are comparable only where fingerprint,
      track and signature are the same
    - code_model (category): digest of the model's sources; missing for references
    - code_revision (category): results revision of the harness
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def __repr__(self) -> str:
        return f"Results({self._store!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._store.close()

    def runs(self) -> pd.DataFrame:
        """One row a planned run, whatever became of it.

        - status (category): "planned", "running", "finished", "failed" or "skipped"
        - reason (string): why it failed or was skipped; missing for others
        """
        with self._store.reading() as connection:
            rows = connection.execute(select(RunRow.id, RunRow.status, RunRow.reason).order_by(RunRow.id)).all()
            return frame_of_runs(connection, rows, {"status": "category", "reason": "string"})

    def leaderboard(
        self, *, split: str | None = None, metric: str = "CIDEr-D", options: RankingOptions = RankingOptions()
    ) -> pd.DataFrame:
        """One row a model and configuration over its seeds: best `metric` of each group first, references below.

        METRIC stands for CIDEr-D and every other metric, COST for every cost that was recorded.

        - group (int64): number of the comparability group, from 1; rows of different groups are not comparable
        - dataset, split, track, model, role (category)
        - differs (string): what sets the row apart from others of its model, for references from the group's signature
        - seeds (string): separated by spaces
        - rank_low, rank_high (Int64): the ranks on `metric` that the differences between rows allow, over seeds and
          images; missing for references, and where unranked_reason has a reason
        - unranked_reason (string): one seed, still learning (unless `options` ranks it), a baseline, or not above a
          baseline
        - interval_over (string): what the interval of `metric` is over: the images alone with one seed
        - still_learning (boolean): whether validation was rising at the end, on average of seeds; missing for rows
          that were not trained
        - METRIC_percent (float64): score of the split, mean over seeds
        - METRIC_sd_percent (float64): sample standard deviation over seeds; NaN for fewer than two
        - METRIC_low_percent, METRIC_high_percent (float64): 95 % interval of the mean, see interval_over
        - METRIC_seeds (int64): number of seeds that have the score
        - METRIC_held_out_percent (float64): score against all references but one, as `scores` has it, mean over seeds
        - not_above (string): the baselines that the row is not significantly above, separated by spaces
        - p_against_best, p_against_above (float64): Holm-adjusted p-value over seeds and images on `metric`, against
          the best placed row of the group and the one above it; NaN for the best
        - CIDEr-D_published_percent (float64): as a paper prints it, under the conditions nearest to the row's
        - CIDEr-D_published_matches (boolean): whether the paper states those conditions, and they are the row's
        - COST (float64): mean over seeds; times, rates and energy over those on the machine of most runs of the group,
          or of all where none was on it. The unit ends the name where the name does not contain it: gmac_beam and
          train_seconds, but latency_median_s and train_peak_memory_host_MiB. Counts, such as parameters, have none.
          Costs that any row has bounds of have two more columns: quartiles of a latency (latency_median_low_s,
          latency_median_high_s), the range of an estimate (train_a100_hours_estimate_low), mean over seeds
        - other_machines (string): which seeds ran on other machines than most of the group; missing: none
        - stated (string): what the card of a system that was trained elsewhere states of its costs; missing: nothing
        - runs (string): keys of the runs, separated by spaces
        - pretraining (string): what the weights were trained on before the run; missing: nothing
        - outdated (string): why it is not of the newest code; missing: it is
        - other_hardware (string): the processor or versions that it, or some of its seeds, was computed with; missing:
          those of most rows of the group
        - plugins (string): the plug-ins that were loaded; missing: none
        - fingerprint, signature, code_model, code_revision (category): of the row's runs
        """
        runs = {run.key: run for run in finished(self._store)}
        groups = leaderboard(self._store, metric, options, runs=list(runs.values()))
        groups.sort(key=lambda group: -len(group.rows))
        check_known("split", split, dict.fromkeys(group.split for group in groups))
        numbered_rows = [
            (group_number, group, row)
            for group_number, group in enumerate(groups, start=1)
            for row in (*group.rows, *group.references)
            if split in {None, group.split}
        ]
        metrics = list(dict.fromkeys((metric, *(name for *_, row in numbered_rows for name in row.scores))))
        units = {name: cost.unit for run in runs.values() for name, cost in run.costs.items() if cost.unit}
        names = dict.fromkeys(name for *_, row in numbered_rows for name in row.costs)
        bounded = {name for *_, row in numbered_rows for name, cost in row.costs.items() if cost.low is not None}
        costs = {
            (name, part): with_unit(name if part == "value" else f"{name}_{part}", units.get(name, ""))
            for name in names
            for part in (("value", "low", "high") if name in bounded else ("value",))
        }
        scores = [f"{metric}_{part}" for metric in metrics for part in _OF_METRIC.values()]
        dtypes = {
            **_FIRST,
            **{name: "int64" if name.endswith("_seeds") else "float64" for name in scores},
            **{f"{metric}_held_out_percent": "float64" for metric in metrics},
            **_BESIDE,
            **dict.fromkeys(costs.values(), "float64"),
            **_LAST,
        }
        rows = [
            {
                **_identity(group_number, group, row, [runs[key] for key in row.keys]),
                **_scores(row, metrics),
                **_rank(row, group, runs[row.keys[0]]),
                **{column: getattr(row.costs.get(name), part, None) for (name, part), column in costs.items()},
            }
            for group_number, group, row in numbered_rows
        ]
        return typed({name: [row[name] for row in rows] for name in dtypes}, dtypes)

    def scores(self, *, split: str | None = None, metric: str | None = None) -> pd.DataFrame:
        """One row a finished run, split, domain and metric.

        - split (category)
        - domain (category): part of the split, as nocaps's "near-domain"; "overall" is the whole
        - metric (category)
        - score_percent (float64): NaN where it was not measured
        - low_percent, high_percent (float64): 95 % bootstrap interval over images
        - reason (string): why there is no score
        - held_out_percent (float64): mean of the scores against all references but one, each left out in turn, which
          compares with the score of human; NaN where it was not computed, and in domains
        - held_out_reason (string): why it could not be computed
        """
        with self._store.reading() as connection:
            same = (getattr(HeldOutScore, name) == getattr(Score, name) for name in ("run_id", "split", "metric"))
            held_out = and_(*same, Score.domain == "overall")
            columns = (Score.split, Score.domain, Score.metric, Score.value, Score.low, Score.high, Score.reason)
            query = select(Score.run_id, *columns, HeldOutScore.value, HeldOutScore.reason)
            query = query.join(RunRow, RunRow.id == Score.run_id).outerjoin(HeldOutScore, held_out)
            rows = read_rows(connection, query.order_by(Score.run_id, Score.id), Score, split=split, metric=metric)
            rows = [row for row in rows if not is_more(row[3])]
            dtypes = {
                **dict.fromkeys(("split", "domain", "metric"), "category"),
                **dict.fromkeys(("score_percent", "low_percent", "high_percent"), "float64"),
                "reason": "string",
                "held_out_percent": "float64",
                "held_out_reason": "string",
            }
            frame = frame_of_runs(connection, rows, dtypes)
            frame[["score_percent", "low_percent", "high_percent", "held_out_percent"]] *= 100
            return frame

    def more_metrics(self, *, split: str | None = None, metric: str | None = None) -> pd.DataFrame:
        """One row a finished run, split and metric of `bench run --more-metrics`; nothing is times 100.

        - split (category)
        - metric (category): with the model or list that it depends on, in parentheses
        - value, low, high (float64): as stored, with the 95 % interval over images where there is one
        - reason (string): why there is no value
        - better (category): "higher", "lower" or "neither"
        """
        with self._store.reading() as connection:
            columns = (Score.split, Score.metric, Score.value, Score.low, Score.high, Score.reason)
            query = select(Score.run_id, *columns).join(RunRow, RunRow.id == Score.run_id)
            rows = read_rows(connection, query.order_by(Score.run_id, Score.id), Score, split=split, metric=metric)
            scored = [(*row, more_metric_info(row[2]).better) for row in rows if is_more(row[2])]
            dtypes = {
                **dict.fromkeys(("split", "metric"), "category"),
                **dict.fromkeys(("value", "low", "high"), "float64"),
                "reason": "string",
                "better": "category",
            }
            return frame_of_runs(connection, scored, dtypes)

    def image_scores(self, *, split: str | None = None, metric: str | None = None) -> pd.DataFrame:
        """One row a finished run, split, metric and image.

        - split (category)
        - image_id (int64)
        - domain (category): the image's domain; missing where the data set has none
        - metric (category)
        - score_percent (float64): score of this image alone
        """
        with self._store.reading() as connection:
            key = ImageScores.run_id, ImageScores.split, ImageScores.metric
            numbers = type_coerce(ImageScores.scores, ScoreArrays)
            query = select(*key, RunRow.dataset_id, numbers).join(RunRow).order_by(*key)
            rows = read_rows(connection, query, ImageScores, split=split, metric=metric)
            rows = [row for row in rows if not is_more(row[2]) and not is_fact(row[2])]
            domains: dict[int, dict[int, str | None]] = {}
            of_images = select(Image.dataset_id, Image.image_id, Image.domain)
            for dataset, image, domain in connection.execute(of_images):
                domains.setdefault(dataset, {})[image] = domain

            # A stored row holds all images of a run, split and metric: what they share is repeated for each.
            runs = frame_of_runs(connection, [row[:3] for row in rows], dict.fromkeys(("split", "metric"), "category"))
            runs = runs.loc[np.repeat(runs.index, [len(ids) for *_, (ids, _) in rows])].reset_index(drop=True)
            columns: dict[str, Any] = {
                "image_id": np.concatenate([np.empty(0, np.int64), *(ids for *_, (ids, _) in rows)]),
                "domain": [
                    domains.get(dataset, {}).get(image) for *_, dataset, (ids, _) in rows for image in ids.tolist()
                ],
                "score_percent": np.concatenate([np.empty(0), *(scores for *_, (_, scores) in rows)]),
            }
            images = typed(columns, {"image_id": "int64", "domain": "category", "score_percent": "float64"})
            images["score_percent"] *= 100
            order = [*IDENTITY, "split", "image_id", "domain", "metric", "score_percent", *CONDITIONS]
            return pd.concat([runs, images], axis=1)[order]

    def captions(self, *, split: str | None = None) -> pd.DataFrame:
        """One row a finished run, split and image.

        - split (category)
        - image_id (int64)
        - file (string): the picture, relative to the data set's folder
        - domain (category): the image's domain; missing where the data set has none
        - references (object): the image's reference captions, a tuple of strings
        - caption (string): the run's caption
        """
        with self._store.reading() as connection:
            query = select(Caption.run_id, RunRow.dataset_id, Caption.split, Caption.image_id, Caption.caption)
            query = query.join(RunRow).order_by(Caption.run_id, Caption.split, Caption.image_id)
            image_query = select(Image.dataset_id, Image.image_id, Image.file, Image.domain, Image.references)
            images = {
                (dataset, image): (file, domain, tuple(references))
                for dataset, image, file, domain, references in connection.execute(image_query)
            }
            rows = [
                (run, split, image, *images.get((dataset, image), (None, None, ())), caption)
                for run, dataset, split, image, caption in read_rows(connection, query, Caption, split=split)
            ]
            dtypes = {"split": "category", "image_id": "int64", "file": "string", "domain": "category"}
            return frame_of_runs(connection, rows, {**dtypes, "references": "object", "caption": "string"})

    def costs(self) -> pd.DataFrame:
        """One row a finished run and cost.

        - cost (category): name of the cost with its unit, as in the leaderboard's columns
        - value (float64): in the unit that the name says; NaN where it was not measured
        - low, high (float64): interval of the value, such as the quartiles of a latency; NaN where there is none
        - unit (category): "s", "GMAC", "MiB" ...; "" for counts
        - reason (string): why there is no value
        """
        with self._store.reading() as connection:
            query = select(Cost.run_id, Cost.name, Cost.unit, Cost.value, Cost.low, Cost.high, Cost.reason)
            rows = read_rows(connection, query.join(RunRow).order_by(Cost.run_id, Cost.id), Cost)
            units = {name: unit for _, name, unit, *_ in rows if unit}  # what was not measured may have none
            rows = [(*row[:2], row[2] or units.get(row[1], ""), *row[3:]) for row in rows]
            named_costs = [
                (run, with_unit(name, unit), *bounds, unit, reason) for run, name, unit, *bounds, reason in rows
            ]
            measured = dict.fromkeys(("value", "low", "high"), "float64")
            dtypes = {"cost": "category", **measured, "unit": "category", "reason": "string"}
            return frame_of_runs(connection, named_costs, dtypes)

    def epochs(self) -> pd.DataFrame:
        """One row an epoch of training, of runs that failed or still run too.

        - status (category): of the run: "running", "finished", "failed" ...
        - stage (int64): number of the training stage, from 0
        - stage_name (category)
        - objective (category): "cross_entropy", "self_critical" ...
        - epoch (int64): number of the epoch in its stage, from 0
        - step (int64): optimiser steps at its end, over all stages
        - learning_rate (float64): at its end
        - train_loss (float64): mean over the epoch's batches, of the stage's objective
        - val_CIDEr-D_percent (float64): NaN after epochs without validation
        - duration_s (float64): time of training, without validation
        - images_per_s (float64)
        """
        with self._store.reading() as connection:
            columns: dict[str, tuple[Any, str]] = {
                "status": (RunRow.status, "category"),
                "stage": (Epoch.stage, "int64"),
                "stage_name": (Epoch.stage_name, "category"),
                "objective": (Epoch.objective, "category"),
                "epoch": (Epoch.epoch, "int64"),
                "step": (Epoch.step, "int64"),
                "learning_rate": (Epoch.learning_rate, "float64"),
                "train_loss": (Epoch.train_loss, "float64"),
                "val_CIDEr-D_percent": (Epoch.val_cider, "float64"),
                "duration_s": (Epoch.seconds, "float64"),
                "images_per_s": (Epoch.images_per_second, "float64"),
            }
            query = select(Epoch.run_id, *(stored for stored, _ in columns.values())).join(RunRow)
            rows = connection.execute(query.order_by(Epoch.run_id, Epoch.stage, Epoch.epoch)).all()
            frame = frame_of_runs(connection, rows, {name: dtype for name, (_, dtype) in columns.items()})
            frame["val_CIDEr-D_percent"] *= 100
            return frame


_FIRST = {
    "group": "int64",
    **dict.fromkeys(("dataset", "split", "track", "model", "role"), "category"),
    **dict.fromkeys(("differs", "seeds"), "string"),
    **dict.fromkeys(("rank_low", "rank_high"), "Int64"),
    **dict.fromkeys(("unranked_reason", "interval_over"), "string"),
    "still_learning": "boolean",
}
_OF_METRIC = {"mean": "percent", "sd": "sd_percent", "low": "low_percent", "high": "high_percent", "n": "seeds"}
_BESIDE = {
    "not_above": "string",
    "p_against_best": "float64",
    "p_against_above": "float64",
    f"{RANKING_METRIC}_published_percent": "float64",
    f"{RANKING_METRIC}_published_matches": "boolean",
}
_LAST = {
    **dict.fromkeys(
        ("other_machines", "stated", "runs", "pretraining", "outdated", "other_hardware", "plugins"), "string"
    ),
    **{name: dtype for name, dtype in CONDITIONS.items() if name != "track"},
}


def _identity(group_number: int, group: Group, row: Row, runs: Sequence[Run]) -> dict[str, Any]:
    codes = [run.code for run in runs if run.code]
    return {
        "group": group_number,
        "dataset": group.dataset,
        "split": group.split,
        "track": group.track,
        "model": row.model,
        "role": row.role,
        "stated": _stated(row),
        "differs": format_fields({name: value for name, value in row.differs.items() if value is not None}),
        "seeds": " ".join(map(str, row.seeds)),
        "runs": " ".join(row.keys),
        "pretraining": row.pretraining and ("; ".join(row.pretraining.data_sets) or "not documented"),
        "outdated": row.outdated,
        "other_hardware": row.other_hardware,
        "plugins": ", ".join(row.plugins) or None,
        "other_machines": "; ".join(dict.fromkeys(machine.explanation for machine in row.other_machines.values()))
        or None,
        "fingerprint": group.fingerprint,
        "signature": format_signature(runs[0].table_signature),
        "code_model": " ".join(dict.fromkeys(code.model for code in codes if code.model)) or None,
        "code_revision": " ".join(dict.fromkeys(code.revision for code in codes)) or None,
    }


def _stated(row: Row) -> str | None:
    """What a card states, as "parameters 41000000; gmac_beam 12.5 GMAC; 8 V100"; None where it states nothing."""
    parts = [f"{name} {cost.value:.12g} {cost.unit}".rstrip() for name, cost in row.stated.items()]
    if row.stated_hardware:
        parts.append(row.stated_hardware)
    return "; ".join(parts) or None


def _scores(row: Row, metrics: Sequence[str]) -> dict[str, float | None]:
    scores: dict[str, float | None] = {}
    for metric in metrics:
        spread = row.scores.get(metric)
        for part, name in _OF_METRIC.items():
            value = getattr(spread, part, None)
            scores[f"{metric}_{name}"] = value or 0 if part == "n" else _percent(value)
        scores[f"{metric}_held_out_percent"] = _percent(row.held_out[metric].mean if metric in row.held_out else None)
    return scores


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else 100 * fraction


def _rank(row: Row, group: Group, run: Run) -> dict[str, Any]:
    nearest_score = nearest(row.model, group.split, run.signature, run.config)
    stated = told_by_card(run.config)
    match = nearest_score if row.role == "model" else None
    rank = row.ranks.get(group.metric)
    spread = row.scores.get(group.metric)
    return {
        "rank_low": rank and rank.best,
        "rank_high": rank and rank.worst,
        "unranked_reason": rank and rank.reason,
        "interval_over": spread and spread.over,
        "still_learning": row.still_learning if row.learning else None,
        "not_above": " ".join(test.baseline for test in rank.not_above) or None if rank else None,
        "p_against_best": rank and rank.p_against_best,
        "p_against_above": rank and rank.p_against_above,
        f"{RANKING_METRIC}_published_percent": match.score.value if match and stated is None else stated,
        f"{RANKING_METRIC}_published_matches": match.matches if match and stated is None else None,
    }


def typed(columns: Mapping[str, Sequence[Any]], dtypes: Mapping[str, str]) -> pd.DataFrame:
    """The columns that `dtypes` names, in its order, of these types even without a row; None is missing."""
    series = {}
    for name, dtype in dtypes.items():
        if dtype == "category":  # in the order in which they first occur
            kinds = pd.Index(list(dict.fromkeys(value for value in columns[name] if value is not None)), dtype="str")
            series[name] = pd.Series(pd.Categorical(columns[name], categories=kinds))
        else:
            series[name] = pd.Series(columns[name], dtype=dtype)
    return pd.DataFrame(series)


def read_rows(connection: Connection, query: Select[*tuple[Any, ...]], table: type[Base], **chosen: str | None) -> Rows:
    """Rows of finished runs whose columns have the chosen values (None: any); StoreError for one that no row has."""
    columns = {name: getattr(table, name) for name, value in chosen.items() if value is not None}
    query = query.where(RunRow.status == "finished", *(column == chosen[name] for name, column in columns.items()))
    rows = connection.execute(query).all()
    if not rows:
        for name, column in columns.items():
            check_known(name, chosen[name], connection.scalars(select(column).distinct().order_by(column)))
    return rows


def check_known(name: str, value: str | None, choices: Iterable[str]) -> None:
    """StoreError where a value is none of the known ones, unless there are none at all."""
    names = list(choices)
    if names and value is not None and value not in names:
        raise StoreError(f"no {name} {value!r} in these results", f"there are: {', '.join(names)}")


def frame_of_runs(connection: Connection, rows: Rows, dtypes: Mapping[str, str]) -> pd.DataFrame:
    """Rows that begin with their run's id, as columns: what identifies the run, those of `dtypes`, the conditions."""
    identity = (RunRow.key, RunRow.model, RunRow.role, RunRow.seed, DatasetRow.name)
    query = select(RunRow.id, *identity, RunRow.track, DatasetRow.fingerprint, RunRow.signature, RunRow.code)
    runs = {}
    for run, *fields, signature, code in connection.execute(query.join(DatasetRow)):
        made_by = (code["model"], code["revision"]) if code else (None, None)
        runs[run] = fields[: len(identity)], (*fields[len(identity) :], format_signature(signature), *made_by)
    table = [(*runs[run][0], *values, *runs[run][1]) for run, *values in rows]
    dtypes = {**IDENTITY, **dtypes, **CONDITIONS}
    columns = list(zip(*table, strict=True)) or [()] * len(dtypes)
    return typed(dict(zip(dtypes, columns, strict=True)), dtypes)
