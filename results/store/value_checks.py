"""What is wrong with a stored value, by the column that it stands in; the counterpart of `results.store.checks`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Column, Double, Integer, String

from results.records import CodeRecord
from results.store.columns import PackedScores, PackedWeights, UtcDateTime, unpack_scores, unpack_weights

Check = Callable[[Any], str | None]
"""Gives what is wrong with a raw value, None where nothing is."""


def check_of(column: Column[Any]) -> Check:
    """The check of a column's raw values (`results.store.raw_rows`)."""
    found = _by_type(column)
    if column.nullable:
        return lambda value: None if value is None else found(value)
    return found


def _by_type(column: Column[Any]) -> Check:
    if isinstance(column.type, PackedScores | PackedWeights):
        unpack = unpack_scores if isinstance(column.type, PackedScores) else unpack_weights
        return lambda value: _blob(value, unpack)
    if isinstance(column.type, UtcDateTime):
        return _time
    if isinstance(column.type, JSON):
        is_shape, shape = _SHAPES[column.table.name, column.name]
        return lambda value: _json(value, is_shape, shape)
    return next(check for kind, check in _PLAIN if isinstance(column.type, kind))


def _integer(value: object) -> str | None:
    return None if isinstance(value, int) else "is not an integer"


def _number(value: object) -> str | None:
    if not isinstance(value, float | int):
        return "is not a number"
    return None if math.isfinite(value) else f"is {value}"


def _text(value: object) -> str | None:
    if not isinstance(value, str):
        return "is not text"
    return None if value.isascii() or value.encode("utf-8", "ignore").decode() == value else "is not UTF-8"


def _time(value: object) -> str | None:
    try:
        datetime.fromisoformat(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "is not a date"
    return None


def _blob(value: object, unpack: Callable[[bytes], object]) -> str | None:
    if not isinstance(value, bytes):
        return "is not a blob"
    try:
        unpack(value)
    except ValueError as error:
        return f"cannot be unpacked: {error}"
    return None


def _json(value: object, is_shape: Callable[[Any], bool], shape: str) -> str | None:
    try:
        found = json.loads(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RecursionError):
        return "is not JSON"
    return None if is_shape(found) else f"is not {shape}"


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_object_of(kind: type) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(isinstance(each, kind) for each in value.values())


def _is_boxes(value: Any) -> bool:
    return value is None or (
        isinstance(value, list)
        and all(
            isinstance(box, list) and len(box) == 4 and all(isinstance(each, int | float) for each in box)
            for box in value
        )
    )


def _is_code(value: Any) -> bool:
    if value is None:
        return True
    try:
        CodeRecord(**value)
    except TypeError:
        return False
    return True


_PLAIN: tuple[tuple[type, Check], ...] = ((Integer, _integer), (Double, _number), (String, _text))
_SHAPES: dict[tuple[str, str], tuple[Callable[[Any], bool], str]] = {
    ("datasets", "split_sizes"): (_is_object_of(int), "an object of numbers of images"),
    ("images", "references"): (_is_texts, "a list of texts"),
    ("runs", "config"): (_is_object, "a JSON object"),
    ("runs", "signature"): (_is_object_of(str), "an object of texts"),
    ("runs", "code"): (_is_code, "a record of code"),
    ("runs", "environment"): (_is_object, "a JSON object"),
    ("runs", "operators"): (_is_object, "a JSON object"),
    ("runs", "execution"): (_is_object, "a JSON object"),
    ("runs", "progress"): (_is_object, "a JSON object"),
    ("attention_maps", "words"): (_is_texts, "a list of texts"),
    ("attention_maps", "boxes"): (_is_boxes, "a list of boxes"),
}
