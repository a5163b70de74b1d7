"""What came out: the store of runs, captions, scores and costs, and the questions that reports ask of it.

Importing this package imports no database library: that waits until `Store` is first touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from results.errors import StoreError
from results.records import (
    AttentionRecord,
    Cell,
    DatasetRecord,
    EpochRecord,
    ImageRecord,
    Outcome,
    Quantity,
    Role,
    SplitResult,
    Status,
)

if TYPE_CHECKING:
    from results.store import Store

__all__ = [
    "AttentionRecord",
    "Cell",
    "DatasetRecord",
    "EpochRecord",
    "ImageRecord",
    "Outcome",
    "Quantity",
    "Role",
    "SplitResult",
    "Status",
    "Store",
    "StoreError",
]


def __getattr__(name: str) -> Any:
    if name == "Store":
        from results.store import Store

        return Store
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
