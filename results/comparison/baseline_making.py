"""Making a baseline of the finished runs of a store, and comparing it with the one that it replaces."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from results.comparison.baseline import FORMAT, UNKNOWN, Baseline, PerImage, Platform, Run, Spent, SplitResults
from results.comparison.run_snapshot import RunSnapshot
from results.errors import StoreError
from results.records import CODE_FIELDS
from results.statistics.paired import MEANS


def newest_runs(snapshots: Iterable[RunSnapshot], metrics: Collection[str] = ()) -> list[tuple[RunSnapshot, Run]]:
    """The newest run of every identity, also as a baseline holds it, with scores of images on `metrics`."""
    newest: dict[object, tuple[RunSnapshot, Run]] = {}
    for each in snapshots:
        run = run_of(each, metrics)
        rival = newest.get(run.identity)
        if rival is None or rival[0].finished_at <= each.finished_at:
            newest[run.identity] = each, run
    return list(newest.values())


def baseline_of(snapshots: Iterable[RunSnapshot], metrics: Collection[str]) -> Baseline:
    """The newest run of every identity; StoreError where no run has finished."""
    runs = tuple(run for _, run in newest_runs(snapshots, metrics))
    if not runs:
        raise StoreError("no run has finished here", "make some with: bench run --models all")
    return Baseline(format=FORMAT, runs=runs)


def check_metrics(metrics: Collection[str], measured: Baseline) -> None:
    """StoreError where a baseline would not hold what was asked for."""
    for metric in metrics:
        if metric not in MEANS:
            raise StoreError(
                f"--metric {metric}: the gate tests means over images, which {metric} is not",
                f"choose of {', '.join(MEANS)}",
            )
        if metric not in measured.metrics:
            raise StoreError(f"--metric {metric}: no run here has a score of it", "bench report says why")


@dataclass(frozen=True, slots=True)
class Update:
    """What a new baseline changes: runs that it adds, that it drops, and those of other conditions with the fields."""

    added: tuple[Run, ...]
    dropped: tuple[Run, ...]
    changed: tuple[tuple[Run, tuple[str, ...]], ...]


def compare_baselines(old: Baseline | None, new: Baseline) -> Update:
    """Which runs `new` adds, lacks, or has under other conditions."""
    before = {run.identity: run for run in old.runs} if old else {}
    after = {run.identity: run for run in new.runs}
    fresh = [run for identity, run in after.items() if identity not in before]
    dropped, changed = [], []
    for run in (run for identity, run in before.items() if identity not in after):
        successor = next((other for other in fresh if other.who == run.who), None)
        if successor is None:
            dropped.append(run)
        else:
            fresh.remove(successor)
            changed.append((run, tuple(differing(run.conditions, successor.conditions))))
    return Update(tuple(fresh), tuple(dropped), tuple(changed))


def differing(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """The fields in which two signatures differ, each with both values."""
    names = dict.fromkeys((*one, *other))
    pairs = {name: (one.get(name, "none"), other.get(name, "none")) for name in names}
    return [f"{name} {before} → {after}" for name, (before, after) in pairs.items() if before != after]


def distinguishing(snapshots: Sequence[RunSnapshot]) -> list[str]:
    """By run, the conditions that distinguish it from others of its model, on one line: one where that is enough."""
    found = []
    runs = [snapshot.run for snapshot in snapshots]
    for run in runs:
        rivals = [other.conditions for other in runs if (other.role, other.model) == (run.role, run.model)]
        names = dict.fromkeys(name for conditions in rivals for name in conditions if name not in CODE_FIELDS)
        values = {name: {conditions.get(name, "none") for conditions in rivals} for name in names}
        alone = [name for name in names if len(values[name]) == len(rivals) > 1]
        shortest = sorted(alone, key=lambda name: max(map(len, values[name])))[:1]
        chosen = shortest or [name for name in names if len(values[name]) > 1]
        found.append(", ".join(f"{name}: {run.conditions.get(name, 'none')}" for name in chosen))
    return found


def run_of(snapshot: RunSnapshot, metrics: Collection[str] = ()) -> Run:
    """A run as a baseline holds it, with scores of images on `metrics`."""
    run = snapshot.run
    splits = {
        split: SplitResults(
            scores={name: score.value for name, score in domains["overall"].items() if score.value is not None},
            by_image={
                metric: PerImage.pack(scores)
                for metric, scores in snapshot.by_image.get(split, {}).items()
                if metric in metrics and scores
            },
            captions=_digest(snapshot.captions.get(split, {})),
        )
        for split, domains in run.scores.items()
    }
    costs = {
        name: Spent(value=cost.value, unit=cost.unit, low=cost.low, high=cost.high)
        for name, cost in run.costs.items()
        if cost.value is not None
    }
    return Run(
        model=run.model,
        role=run.role,
        seed=run.seed,
        signature=run.conditions,
        code=snapshot.code,
        platform=_platform(snapshot.environment),
        losses=tuple(snapshot.losses),
        splits=splits,
        costs=costs,
    )


def _digest(captions: Mapping[int, str]) -> str:
    """SHA-256 of a split's captions in the order of image ids."""
    listed = json.dumps(sorted(captions.items()), ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(listed.encode()).hexdigest()


def _platform(environment: Mapping[str, Any]) -> Platform:
    """From a run's recorded environment, any field of which may be missing."""
    packages, training = (_table(environment.get(name)) for name in ("packages", "training"))
    device = environment.get("device")
    if isinstance(device, dict):
        device = " ".join(str(device[field]) for field in ("type", "name") if field in device)
    return Platform(
        torch=_known(packages.get("torch")),
        numpy=_known(packages.get("numpy")),
        os=_known(environment.get("os")),
        machine=_known(environment.get("machine")),
        cpu=_known(environment.get("cpu")),
        threads=_known(environment.get("threads")),
        device=_known(device),
        training=", ".join(f"{name} {value}" for name, value in training.items()) or "none",
    )


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _known(value: Any) -> str:
    return UNKNOWN if value is None else str(value)
