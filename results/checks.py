"""What may enter the store: finite numbers, JSON that every reader understands, text that can be encoded."""

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
    """The columns of a quantity: exactly one of value and reason."""
    if (value.value is None) == (not value.reason):
        raise StoreError(
            f"{what} needs exactly one of a value and a reason (value {value.value!r}, reason {value.reason!r})"
        )
    if value.value is None:
        return {"value": None, "reason": text(value.reason or ""), "unit": value.unit}
    return {"value": finite(value.value, what), "reason": None, "unit": value.unit}


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
