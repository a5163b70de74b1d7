"""Runs, rows and groups of which only a few fields count."""

from collections import defaultdict
from collections.abc import Mapping

from reports.tables.contents import Contents
from results.runs.leaderboard import Group, Row
from results.runs.run import Run
from results.runs.spreads import Spread


def run(**config: object) -> Run:
    """A run of which only the configuration counts."""
    return Run(
        id=1, key="k", model="m2", role="model", kind="trained", seed=1, track="controlled", dataset="d",
        fingerprint="d#1", status="finished", reason=None, error_class=None, log_tail=None, attempts=1, code_version="",
        started_at=None, finished_at=None, checkpoint=None, config=dict(config),
        signature={"data": "coco#1", "beam": "5", "feat": "resnet"}, environment={}, operators={}, code=None,
    )  # fmt: skip


def staged(*objectives: str) -> Run:
    return run(preset={"schedule": {"stages": [{"objective": name} for name in objectives]}})


def row(model: str, *, cider: float = 1.0) -> Row:
    return Row(
        model, "model", (1,), ("k",), {"CIDEr-D": Spread(cider, None, 1, None, cider - 0.1, cider + 0.1)}, {}, {}
    )


def group(*rows: Row, beam: str = "5", separating: tuple[str, ...] = ()) -> Group:
    signature = {"data": "coco#1", "beam": beam}
    return Group("coco", "coco#1", "test", "controlled", signature, rows, (), separating)


def contents(*groups: Group, runs: Mapping[str, Run] | None = None) -> Contents:
    """What reports show of these groups; without `runs` one stands for all."""
    known = defaultdict(run) if runs is None else runs
    ordered = sorted(groups, key=lambda each: -len(each.rows))
    return Contents(tuple(ordered), (), (), (), known)
