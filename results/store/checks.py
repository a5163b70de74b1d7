"""Checks of values to be stored: finite numbers, standard JSON, text that can be encoded."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from results.errors import StoreError
from results.records import Quantity


def finite(value: float, what: str) -> float:
    """The value as a float; NaN and infinity are refused, since they are not measurements."""
    number = float(value)
    if not math.isfinite(number):
        raise StoreError(f"{what} is {number}; only finite numbers are stored", "record None with a reason instead")
    return number


def quantity(value: Quantity, what: str) -> dict[str, Any]:
    """The columns of a quantity: exactly one of value and reason, and both ends of its interval or none."""
    if (value.value is None) == (not value.reason):
        raise StoreError(
            f"{what} needs exactly one of a value and a reason (value {value.value!r}, reason {value.reason!r})"
        )
    interval = _interval(value, what)
    if value.value is None:
        return {"value": None, "reason": text(value.reason or ""), "unit": value.unit, **interval}
    return {"value": finite(value.value, what), "reason": None, "unit": value.unit, **interval}


def _interval(value: Quantity, what: str) -> dict[str, float | None]:
    if value.low is None and value.high is None:
        return {"low": None, "high": None}
    if value.value is None or value.low is None or value.high is None:
        raise StoreError(f"{what} needs a value and both ends of its interval, or no interval")
    low, high = finite(value.low, f"{what}: low end"), finite(value.high, f"{what}: high end")
    if low > high:
        raise StoreError(f"{what} has an interval whose low end {low} lies above its high end {high}")
    return {"low": low, "high": high}


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
