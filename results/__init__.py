"""Results: the store of runs, captions, scores and costs, and the queries, statistics and data frames over it.

`open` gives a workspace's results as pandas data frames. Importing this package imports neither pandas nor a database
library: that waits until `open`, `Results` or `Store` is first touched.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from results.errors import StoreError
from results.records import (
    AttentionRecord,
    DatasetRecord,
    EpochRecord,
    ImageRecord,
    Outcome,
    Quantity,
    RunSpec,
    SplitResult,
)

if TYPE_CHECKING:
    from results.frames import Results, open
    from results.store.store import Store

__all__ = [
    "AttentionRecord",
    "DatasetRecord",
    "EpochRecord",
    "ImageRecord",
    "Outcome",
    "Quantity",
    "Results",
    "RunSpec",
    "SplitResult",
    "Store",
    "StoreError",
    "open",
]

_HOMES = {"Results": "results.frames", "Store": "results.store.store", "open": "results.frames"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
