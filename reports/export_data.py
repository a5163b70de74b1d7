"""Leaderboards as data for other programs: CSV with a line a row, JSON with everything. Metrics are fractions."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from reports import numbers
from reports.boards import by_size
from reports.contamination import contamination
from reports.printed import nearest
from results.views import Group, Row, RunDetail

_FIRST = ("dataset", "split", "track", "model", "role", "differs", "seeds", "tier")
_SEEN = ("contamination", "contamination note")
_PARTS = ("mean", "sd", "n", "low", "high")


def as_csv(groups: Sequence[Group], runs: Mapping[str, RunDetail]) -> str:
    """A line a row: what it is, each metric's mean, spread and interval, costs, the signature; blank: not measured."""
    shown = [(group, row) for group in by_size(groups) for row in (*group.rows, *group.references)]
    metrics = numbers.metric_order(name for _, row in shown for name in row.scores)
    costs = numbers.cost_order(name for _, row in shown for name in row.costs)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    scores = [name if part == "mean" else f"{name} {part}" for name in metrics for part in _PARTS]
    writer.writerow([*_FIRST, *scores, "CIDEr-D published", *costs, *_SEEN, "signature"])
    for group, row in shown:
        differs = ", ".join(f"{name}: {value}" for name, value in row.differs.items())
        tier = row.standing.tier if row.standing else None
        first = (
            group.dataset,
            group.split,
            group.track,
            row.model,
            row.role,
            differs,
            " ".join(map(str, row.seeds)),
            tier,
        )
        spreads = [row.scores.get(name) for name in metrics]
        measured = [getattr(spread, part) if spread else None for spread in spreads for part in _PARTS]
        match = nearest(row, group, runs)
        spent = [row.costs[name].value if name in row.costs else None for name in costs]
        signature = "|".join(f"{name}:{value}" for name, value in runs[row.keys[0]].signature.items())
        printed = match.score.fraction if match else None
        seen = contamination(row.pretraining, group.dataset, group.split)
        told = (seen.label, seen.sentence) if seen else (None, None)
        writer.writerow([_harmless(value) for value in (*first, *measured, printed, *spent, *told, signature)])
    return text.getvalue()


def as_json(groups: Sequence[Group], runs: Mapping[str, RunDetail]) -> str:
    """Every group with its signature and rows; what was not measured is null with its reason."""
    told = [
        {
            "dataset": group.dataset,
            "fingerprint": group.fingerprint,
            "split": group.split,
            "track": group.track,
            "signature": group.signature,
            "separating": group.separating,
            "test": asdict(group.test) if group.test else None,
            "rows": [_row(row, group, runs) for row in group.rows],
            "references": [_row(row, group, runs) for row in group.references],
        }
        for group in by_size(groups)
    ]
    return json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _row(row: Row, group: Group, runs: Mapping[str, RunDetail]) -> dict[str, Any]:
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


def _harmless(value: object) -> object:
    """Text that a spreadsheet would take for a formula is quoted by an apostrophe."""
    if not isinstance(value, str):
        return value
    text = numbers.printable(value)
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text
