"""Leaderboards as data for other programs: CSV with a line a row, JSON with every reason, metrics as fractions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from reports.tables import numbers
from reports.tables.contamination import contamination
from reports.tables.leaderboard_page import by_size
from reports.tables.printed import nearest
from reports.tables.verdict import verdict
from results.runs.controls import Controls
from results.runs.leaderboard import Group, Row
from results.runs.run import Run

if TYPE_CHECKING:
    from pandas import DataFrame


def as_csv(leaderboard: DataFrame) -> str:
    """The frame of `Results.leaderboard`, a line a row; blank: not measured."""
    text = leaderboard.select_dtypes(["category", "string"]).columns
    harmless = {name: leaderboard[name].astype("string").map(_harmless, na_action="ignore") for name in text}
    return leaderboard.assign(**harmless).to_csv(index=False, lineterminator="\n")


def as_json(groups: Sequence[Group], runs: Mapping[str, Run], controls: Sequence[Controls]) -> str:
    """Every group with its signature, rows and controls; what was not measured is null with its reason.

    `controls` are in the order of the groups, in points of the ranking metric.
    """
    beside = {id(group): found for group, found in zip(groups, controls, strict=True)}
    leaderboards = [
        {
            "dataset": group.dataset,
            "fingerprint": group.fingerprint,
            "split": group.split,
            "track": group.track,
            "signature": group.signature,
            "separating": group.separating,
            "verdict": verdict(group),
            "metric": group.metric,
            "reseeding": asdict(group.reseeding) if group.reseeding else None,
            "test": asdict(group.test) if group.test else None,
            "rows": [_row(row, group, runs) for row in group.rows],
            "references": [_row(row, group, runs) for row in group.references],
            "controls": asdict(beside[id(group)]),
        }
        for group in by_size(groups)
    ]
    return json.dumps(leaderboards, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _row(row: Row, group: Group, runs: Mapping[str, Run]) -> dict[str, Any]:
    match = nearest(row, group, runs)
    published = match and {
        "value": match.score.fraction,
        "source": match.score.source,
        "matches": match.matches,
        "differing": match.differing,
        "not_stated": match.unstated,
        "not_comparable": match.unclear,
        "footnotes": [footnote.text for footnote in match.footnotes],
    }
    seen = contamination(row.pretraining, group.dataset, group.split)
    return {**asdict(row), "contamination": seen and asdict(seen), "published": published}


def _harmless(value: str) -> str:
    """Text that a spreadsheet would take for a formula is quoted by an apostrophe."""
    text = numbers.printable(value)
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text
