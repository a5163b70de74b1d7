"""Runs, rows and groups of which only a few fields count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from reports.tables.contents import Contents
from results.runs.controls import Controls
from results.runs.views import Group, Row, RunDetail, Spread


def run(**config: object) -> RunDetail:
    """A run of which only the configuration counts."""
    return RunDetail(
        "k", "m2", "model", 1, "controlled", "d", "d#1", "finished", None, None, None, 1, "", None, None, None,
        dict(config), {"data": "coco#1", "beam": "5", "feat": "resnet"}, {}, {}, (), {}, {},
    )  # fmt: skip


def staged(*objectives: str) -> RunDetail:
    return run(preset={"schedule": {"stages": [{"objective": name} for name in objectives]}})


def row(model: str, *, cider: float = 1.0) -> Row:
    return Row(
        model, "model", (1,), ("k",), {"CIDEr-D": Spread(cider, None, 1, None, cider - 0.1, cider + 0.1)}, {}, {}
    )


def group(*rows: Row, beam: str = "5", separating: tuple[str, ...] = ()) -> Group:
    signature = {"data": "coco#1", "beam": beam}
    return Group("coco", "coco#1", "test", "controlled", signature, rows, (), separating)


def contents(*groups: Group, runs: Mapping[str, RunDetail] | None = None) -> Contents:
    """What reports show of these groups; without `runs` one stands for all."""
    known = defaultdict(run) if runs is None else runs
    ordered = sorted(groups, key=lambda each: -len(each.rows))
    return Contents(tuple(ordered), (), (), (), known, tuple(Controls() for _ in groups))
