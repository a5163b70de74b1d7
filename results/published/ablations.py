"""The tables of papers that a preset trains row by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from results.published.names import NAMES
from results.published.scores import METRICS, PublishedScore, printed_rows, scores

ABLATIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "expansionnet-v1-ablation": (("expansionnet_v1", "Table 3"),),
    "expansionnet-v2-ablation": (("expansionnet_v2_arxiv", "Table 2"), ("expansionnet_v2", "Table I")),
    "image-transformer-ablation": (("image_transformer", "Table 3"),),
}
"""By preset, papers and tables, as the file of printed numbers names them."""


@dataclass(frozen=True, slots=True)
class AblationRow:
    """One printed row, its scores by metric, and the models of the zoo that are built as it says."""

    scores: Mapping[str, PublishedScore]
    models: tuple[str, ...]

    @property
    def name(self) -> str:
        """The row as it is printed."""
        first = self.first
        return f"{first.model}: {first.variant}" if first.variant else first.model

    @property
    def first(self) -> PublishedScore:
        """Any of its numbers, for what all of them share."""
        return next(iter(self.scores.values()))


@dataclass(frozen=True, slots=True)
class AblationTable:
    """A printed table: `rows` in its order, and the `metrics` that it has columns for."""

    paper: str
    table: str
    metrics: tuple[str, ...]
    rows: tuple[AblationRow, ...]


def ablation_tables(preset: str) -> tuple[AblationTable, ...]:
    """The tables whose rows a preset trains; none for other presets."""
    return tuple(_table(paper, table) for paper, table in ABLATIONS.get(preset, ()))


def _table(paper: str, table: str) -> AblationTable:
    rows = printed_rows(
        score for score in scores() if (score.paper, score.table, score.unit) == (paper, table, "percent")
    )
    metrics = tuple(name for name in METRICS if any(name in row for row in rows))
    return AblationTable(paper, table, metrics, tuple(AblationRow(row, _models(row)) for row in rows))


def _models(row: Mapping[str, PublishedScore]) -> tuple[str, ...]:
    """Models that one of the rows of their own covers; end-to-end training is no ablation's."""
    first = next(iter(row.values()))
    return tuple(name for name, printed in NAMES.items() if any(rows.covers(first) for rows in printed))
