"""Leaderboards as data for other programs: CSV with a line a row, JSON with every reason, metrics as fractions."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from reports.tables import numbers
from reports.tables.contents import Contents
from reports.tables.facts import contamination
from reports.tables.printed import nearest
from reports.tables.verdict import verdict
from results.runs.leaderboard import Group, Row

if TYPE_CHECKING:
    from pandas import DataFrame


def as_csv(leaderboard: DataFrame) -> str:
    """The frame of `Results.leaderboard`, a line a row; blank: not measured."""
    text = leaderboard.select_dtypes(["category", "string"]).columns
    harmless = {name: leaderboard[name].astype("string").map(_harmless, na_action="ignore") for name in text}
    return leaderboard.assign(**harmless).to_csv(index=False, lineterminator="\n")


def as_json(contents: Contents) -> str:
    """Every group with its signature, rows and controls (in points); what was not measured is null with its reason."""
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
            "comparisons": asdict(group.comparisons) if group.comparisons else None,
            "rows": [_row(row, group, contents) for row in group.rows],
            "references": [_row(row, group, contents) for row in group.references],
            "controls": asdict(controls),
        }
        for group, controls in zip(contents.groups, contents.controls, strict=True)
    ]
    return json.dumps(leaderboards, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _row(row: Row, group: Group, contents: Contents) -> dict[str, Any]:
    match = nearest(row, group, contents.runs)
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
    found = asdict(row)
    for metric, standing in found["standings"].items():
        if metric != group.metric:  # a row's floors are those of the metric that ranks it
            standing |= {"floors": None, "floors_reason": f"rows are tested against floors on {group.metric} alone"}
    return {**found, "contamination": seen and asdict(seen), "published": published}


def _harmless(value: str) -> str:
    """Text that a spreadsheet would take for a formula is quoted by an apostrophe."""
    text = numbers.printable(value)
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text
