"""The leaderboard as one wide data frame: a row a model and configuration, columns by metric and cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from results.frames.runs import CONDITIONS, check_known, signature_text, typed, with_unit
from results.published.matching import best_match, measured_conditions
from results.runs.leaderboard import RANKING_METRIC, Group, Row, leaderboard
from results.runs.reading import finished
from results.runs.run import Run
from results.runs.standings import JUDGED_AS_USUAL, Judging
from results.store.store import Store

_FIRST = {
    "group": "int64",
    **dict.fromkeys(("dataset", "split", "track", "model", "role"), "category"),
    **dict.fromkeys(("differs", "seeds"), "string"),
    **dict.fromkeys(("place_best", "place_worst"), "Int64"),
    **dict.fromkeys(("no_place", "interval_over"), "string"),
    "still_learning": "boolean",
}
_OF_METRIC = {"mean": "percent", "sd": "sd_percent", "low": "low_percent", "high": "high_percent", "n": "seeds"}

_BESIDE = {
    "not_above": "string",
    "p_against_best": "float64",
    "p_against_above": "float64",
    f"{RANKING_METRIC}_published_percent": "float64",
    f"{RANKING_METRIC}_published_matches": "boolean",
}
_LAST = {
    **dict.fromkeys(("other_machines", "runs", "pretraining", "outdated", "elsewhere", "plugins"), "string"),
    **{name: dtype for name, dtype in CONDITIONS.items() if name != "track"},
}


def leaderboard_frame(
    store: Store, split: str | None, metric: str = RANKING_METRIC, judging: Judging = JUDGED_AS_USUAL
) -> pd.DataFrame:
    """Groups of most rows first, as in the report; in each its rows, best first, then its references."""
    groups = sorted(leaderboard(store, metric, judging), key=lambda group: -len(group.rows))
    runs = {run.key: run for run in finished(store)}
    check_known("split", split, dict.fromkeys(group.split for group in groups))
    shown = [
        (number, group, row)
        for number, group in enumerate(groups, start=1)
        for row in (*group.rows, *group.references)
        if split in {None, group.split}
    ]
    metrics = list(dict.fromkeys((metric, *(name for *_, row in shown for name in row.scores))))
    units = {name: cost.unit for run in runs.values() for name, cost in run.costs.items() if cost.unit}
    names = dict.fromkeys(name for *_, row in shown for name in row.costs)
    bounded = {name for *_, row in shown for name, cost in row.costs.items() if cost.low is not None}
    costs = {
        (name, part): with_unit(name if part == "value" else f"{name}_{part}", units.get(name, ""))
        for name in names
        for part in (("value", "low", "high") if name in bounded else ("value",))
    }
    dtypes = {
        **_FIRST,
        **{
            f"{metric}_{part}": "int64" if part == "seeds" else "float64"
            for metric in metrics
            for part in _OF_METRIC.values()
        },
        **{f"{metric}_held_out_percent": "float64" for metric in metrics},
        **_BESIDE,
        **dict.fromkeys(costs.values(), "float64"),
        **_LAST,
    }
    rows = [
        {
            **_identity(number, group, row, [runs[key] for key in row.keys]),
            **_scores(row, metrics),
            **_standing(row, group, runs[row.keys[0]]),
            **{column: getattr(row.costs.get(name), part, None) for (name, part), column in costs.items()},
        }
        for number, group, row in shown
    ]
    return typed({name: [row[name] for row in rows] for name in dtypes}, dtypes)


def _identity(number: int, group: Group, row: Row, runs: Sequence[Run]) -> dict[str, Any]:
    codes = [run.code for run in runs if run.code]
    return {
        "group": number,
        "dataset": group.dataset,
        "split": group.split,
        "track": runs[0].track,
        "model": row.model,
        "role": row.role,
        "differs": ", ".join(f"{name}: {value}" for name, value in row.differs.items() if value is not None),
        "seeds": " ".join(map(str, row.seeds)),
        "runs": " ".join(row.keys),
        "pretraining": row.pretraining and ("; ".join(row.pretraining.data_sets) or "not documented"),
        "outdated": row.outdated,
        "elsewhere": row.elsewhere,
        "plugins": ", ".join(row.plugins) or None,
        "other_machines": "; ".join(dict.fromkeys(other.said for other in row.other_machines.values())) or None,
        "fingerprint": group.fingerprint,
        "signature": signature_text(runs[0].signature),
        "code_model": " ".join(dict.fromkeys(code.model for code in codes if code.model)) or None,
        "code_revision": " ".join(dict.fromkeys(code.revision for code in codes)) or None,
    }


def _scores(row: Row, metrics: Sequence[str]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for metric in metrics:
        spread = row.scores.get(metric)
        for part, name in _OF_METRIC.items():
            value = getattr(spread, part, None)
            if part == "n":
                found[f"{metric}_{name}"] = value or 0
            else:
                found[f"{metric}_{name}"] = _percent(value)
        found[f"{metric}_held_out_percent"] = _percent(row.held_out[metric].mean if metric in row.held_out else None)
    return found


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else 100 * fraction


def _standing(row: Row, group: Group, run: Run) -> dict[str, Any]:
    conditions = measured_conditions(group.split, run.signature, run.config)
    match = best_match(row.model, RANKING_METRIC, conditions) if row.role == "model" else None
    standing, spread = row.standings.get(group.metric), row.scores.get(group.metric)
    return {
        "place_best": standing and standing.best,
        "place_worst": standing and standing.worst,
        "no_place": standing and standing.reason,
        "interval_over": spread and spread.over,
        "still_learning": row.still_learning if row.learning else None,
        "not_above": " ".join(test.floor for test in standing.not_above) or None if standing else None,
        "p_against_best": standing and standing.against_best,
        "p_against_above": standing and standing.against_above,
        f"{RANKING_METRIC}_published_percent": match and match.score.value,
        f"{RANKING_METRIC}_published_matches": match and match.matches,
    }
