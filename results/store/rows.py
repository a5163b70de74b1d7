"""From records to the columns of their rows, checked before a transaction begins."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final

from sqlalchemy import Connection, insert

from results.errors import StoreError
from results.records import AttentionRecord, EpochRecord, Outcome, Quantity, RunSpec, SplitResult
from results.store.schema import AttentionMap, Base, Caption, Cost, HeldOutScore, ImageInfluences, ImageScores, Score


def finite(value: float, what: str) -> float:
    """The value as a float; NaN and infinity are refused, since they are not measurements."""
    number = float(value)
    if not math.isfinite(number):
        raise StoreError(f"{what} is {number}; only finite numbers are stored", "record None with a reason instead")
    return number


def quantity(value: Quantity, what: str) -> dict[str, Any]:
    """The columns of a quantity, with both ends of its interval or none; the tables see to a value or a reason."""
    ends = {"low": value.low, "high": value.high}
    low, high = (None if end is None else finite(end, f"{what}: {name} end") for name, end in ends.items())
    if (low is None) != (high is None) or (low is not None and value.value is None):
        raise StoreError(f"{what} needs a value and both ends of its interval, or no interval")
    number = None if value.value is None else finite(value.value, what)
    reason = text(value.reason) if value.reason else None
    return {"value": number, "reason": reason, "unit": value.unit, "low": low, "high": high}


def json_object(value: Mapping[str, Any], what: str) -> dict[str, Any]:
    """A plain copy of a JSON object, as it will be read back."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(value), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise StoreError(f"{what} cannot be stored as JSON: {error}") from error
    return plain


def text(value: str) -> str:
    """Free text with what no database encodes (lone surrogates, NUL) written as escapes."""
    return value.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


Columns = dict[str, Any]
Scores = Score | HeldOutScore | ImageScores | ImageInfluences
RunPart = Scores | Caption | Cost | AttentionMap
RUN_PARTS: Final = (Caption, Score, HeldOutScore, ImageScores, ImageInfluences, Cost, AttentionMap)
"""What a finished run has, in the order in which rows may be inserted: a map hangs on its caption."""


def insert_all(connection: Connection, table: type[Base], rows: Iterable[Columns], **common: Any) -> None:
    """Insert rows that all have the same columns, with the `common` ones added; none at all is fine."""
    complete = [{**common, **row} for row in rows]
    if complete:
        connection.execute(insert(table), complete)


def planned_columns(spec: RunSpec) -> Columns:
    """The columns of `RunRow` that planning a known run again brings up to date."""
    what = f"run {spec.key}: "
    config = None if spec.config is None else json_object(spec.config, what + "configuration")
    return {"config": config, "record": json_object(spec.record, what + "record")}


def run_columns(spec: RunSpec, datasets: Mapping[str, int]) -> Columns:
    if spec.dataset not in datasets:
        raise StoreError(
            f"run {spec.key} is planned on the data set {spec.dataset!r}, which was never recorded",
            "record the data set first; a run names it by its fingerprint",
        )
    columns = asdict(spec)
    del columns["dataset"]
    return {
        **columns,
        **planned_columns(spec),
        "signature": json_object(spec.signature, f"run {spec.key}: signature"),
        "dataset_id": datasets[spec.dataset],
        "status": "planned",
        "attempts": 0,
        "environment": {},
        "operators": {},
    }


def epoch_columns(key: str, record: EpochRecord) -> Columns:
    epoch = f"run {key}, stage {record.stage}, epoch {record.epoch}"
    columns = asdict(record)
    for name in ("learning_rate", "train_loss", "val_cider", "seconds", "images_per_second"):
        if columns[name] is not None:
            columns[name] = finite(columns[name], f"{epoch}: {name}")
    return columns


def outcome_columns(key: str, outcome: Outcome) -> dict[type[RunPart], list[Columns]]:
    if not outcome.splits:
        raise StoreError(f"run {key}: a finished run has results on at least one split")
    rows: dict[type[RunPart], list[Columns]] = {table: [] for table in RUN_PARTS}
    for result in outcome.splits:
        rows[Caption] += [
            {"split": result.split, "image_id": image_id, "caption": text(caption)}
            for image_id, caption in result.captions.items()
        ]
        for table, scored in score_rows(key, result).items():
            rows[table] += scored
        maps = (attention_columns(key, record) for record in result.attention)
        rows[AttentionMap] += [{"split": result.split, **columns} for columns in maps]
    rows[Cost] += cost_columns(key, outcome.costs)
    return rows


def score_rows(key: str, result: SplitResult) -> dict[type[Scores], list[Columns]]:
    """The rows of a split's scores, by table."""
    return {
        Score: score_columns(key, result),
        HeldOutScore: held_out_columns(key, result.split, result.held_out),
        ImageScores: packed_columns(key, result, result.per_image, "scores"),
        ImageInfluences: packed_columns(key, result, result.influences, "influences"),
    }


def cost_columns(key: str, costs: Mapping[str, Quantity]) -> list[Columns]:
    return [{"name": name, **quantity(cost, f"run {key}: cost {name}")} for name, cost in costs.items()]


def attention_columns(key: str, record: AttentionRecord) -> Columns:
    subject = f"run {key}: attention on image {record.image_id}"
    height, width = record.grid or (None, None)
    places = len(record.boxes or ()) if height is None or width is None else height * width
    rows = (*record.weights, *record.among)
    labels = [*map(text, record.words), *record.sources]
    if len(rows) != len(labels) or any(len(row) != places for row in rows):
        counts = f"{len(record.words)} words" + (f" and {len(record.sources)} places" if record.sources else "")
        raise StoreError(f"{subject} needs {places} weights for each of its {counts}")
    return {
        "image_id": record.image_id,
        "words": labels,
        "weights": [list(row) for row in rows],
        "grid_height": height,
        "grid_width": width,
        "boxes": record.boxes,
    }


def score_columns(key: str, result: SplitResult) -> list[Columns]:
    if not result.scores.get("overall"):
        raise StoreError(f"run {key}: split {result.split} has no scores of the domain 'overall', nor reasons for none")
    rows = []
    for domain, metrics in result.scores.items():
        for metric, score in metrics.items():
            columns = quantity(score, f"run {key}: {metric} on {result.split}, {domain}")
            rows.append({"split": result.split, "domain": domain, "metric": metric, **columns})
    return rows


def held_out_columns(key: str, split: str, scores: Mapping[str, Quantity]) -> list[Columns]:
    rows = []
    for metric, score in scores.items():
        checked = quantity(score, f"run {key}: {metric} on {split}, a reference held out")
        rows.append({"split": split, "metric": metric} | {name: checked[name] for name in ("value", "reason")})
    return rows


def packed_columns(key: str, result: SplitResult, found: Mapping[str, Mapping[int, float]], kind: str) -> list[Columns]:
    """Rows with a number for each image, by metric."""
    rows = []
    for metric, scores in found.items():
        if not scores.keys() <= result.captions.keys():
            raise StoreError(f"run {key}: {metric} on {result.split} has {kind} of images that have no caption")
        packed = {
            image_id: finite(score, f"run {key}: {metric} of image {image_id} on {result.split}")
            for image_id, score in scores.items()
        }
        rows.append({"split": result.split, "metric": metric, "scores": packed})
    return rows
