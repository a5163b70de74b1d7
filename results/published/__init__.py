"""Published scores with the conditions that the papers state: shown beside measured numbers, never ranked.

`published.csv` holds one printed number a row. A blank condition means that the paper does not state it; nothing is
filled in. Imports neither torch nor pandas nor the database.
"""

from results.published.matching import (
    MeasuredConditions,
    PublishedMatch,
    RunRecipe,
    TrainingTime,
    best_match,
    measured_conditions,
    printed_split,
    published_for,
    training_times,
)
from results.published.scores import (
    PAPERS,
    Footnote,
    Paper,
    PublishedScore,
    domain_footnote,
    footnotes,
    printed_rows,
    scores,
)

__all__ = [
    "PAPERS",
    "Footnote",
    "MeasuredConditions",
    "Paper",
    "PublishedMatch",
    "PublishedScore",
    "RunRecipe",
    "TrainingTime",
    "best_match",
    "domain_footnote",
    "footnotes",
    "measured_conditions",
    "printed_rows",
    "printed_split",
    "published_for",
    "scores",
    "training_times",
]
