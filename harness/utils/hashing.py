"""Canonical JSON and short digests, independent of the order of keys."""

import hashlib
import json
from typing import Any


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no extra white space; NaN and infinity raise ValueError."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any, length: int = 12) -> str:
    """The first `length` hex digits of the SHA-256 of `value` as canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:length]
