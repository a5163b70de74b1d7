"""Every number that is exported of Flickr8k's comparisons, computed anew from its stored scores of single images."""

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize, special, stats

from reports.tables.contents import Contents
from reports.text.markup import as_json
from results.store.store import Store

DATABASE = Path(__file__).parents[2] / "baselines" / "flickr8k.sqlite"
SAME = {"rel": 1e-9, "abs": 1e-12}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    copy = tmp_path_factory.mktemp("flickr8k") / "bench.sqlite"
    shutil.copy(DATABASE, copy)
    found: list[dict[str, Any]] = json.loads(as_json(Contents.read(Store(copy))))
    return found


@pytest.fixture(scope="module")
def scores() -> dict[str, np.ndarray]:
    """CIDEr-D of the test images by the run's key: half of a blob is ids, half scores."""
    query = "SELECT key, scores FROM image_scores JOIN runs ON runs.id = run_id WHERE metric = 'CIDEr-D'"
    with sqlite3.connect(f"file:{DATABASE}?mode=ro&immutable=1", uri=True) as connection:
        return {key: np.frombuffer(blob[len(blob) // 2 :], "<f8") for key, blob in connection.execute(query)}


def variances(scores: np.ndarray) -> tuple[float, float]:
    """Of the mean over seeds, s² / S, and what the residuals of seeds and images make of it, e² / (S N)."""
    seeds, images = scores.shape
    if seeds == 1:
        return 0.0, 0.0
    residuals = scores - scores.mean(axis=0) - scores.mean(axis=1, keepdims=True) + scores.mean()
    return scores.mean(axis=1).var(ddof=1) / seeds, (residuals**2).sum() / (seeds - 1) / (images - 1) / seeds / images


def prior_of(own: np.ndarray, degrees: int) -> tuple[float, float]:
    """Degrees of freedom and variance of the table (Smyth 2004)."""
    logs = np.log(own) - special.digamma(degrees / 2) + np.log(degrees / 2)
    excess = logs.var(ddof=1) - special.polygamma(1, degrees / 2)
    at_most = excess <= special.polygamma(1, 15)
    half = 15.0 if at_most else optimize.brentq(lambda x: special.polygamma(1, x) - excess, 1e-3, 15, xtol=1e-14)
    return 2 * half, float(np.exp(logs.mean() + special.digamma(half) - np.log(half)))


def difference(sides: Sequence[np.ndarray], between: list[float], free: list[float]) -> tuple[float, ...]:
    """The mean difference, or one side's mean, its seeds' and images' variances, and the degrees of freedom."""
    by_image = sides[0].mean(axis=0) - sum(side.mean(axis=0) for side in sides[1:])
    left = max(by_image.var(ddof=1) / len(by_image) - sum(variances(side)[1] for side in sides), 0.0)
    part = sum(between)
    welch = part**2 / sum(variance**2 / degrees for variance, degrees in zip(between, free, strict=True))
    return by_image.mean(), part, left, (part + left) / (part / welch + left / (len(by_image) - 1))


def apart(*sides: np.ndarray) -> tuple[float, ...]:
    """The difference as no others tell of it: each side has its own variance alone."""
    return difference(sides, [variances(side)[0] for side in sides], [max(len(side) - 1.0, 1.0) for side in sides])


def holm(p: np.ndarray) -> np.ndarray:
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1)
    return adjusted


@pytest.mark.parametrize("number", range(3))
def test_pairs_and_places(number: int, exported: list[dict[str, Any]], scores: dict[str, np.ndarray]) -> None:
    found, rows = exported[number]["comparisons"], exported[number]["rows"]
    counts = Counter(seed for row in rows if row["model"] != "blind" for seed in row["seeds"])
    assert found["seeds"] == [seed for seed, count in sorted(counts.items()) if 2 * count > len(found["rows"])]
    assert found["rows"] == [at for at, row in enumerate(rows) if row["model"] != "blind"]
    keys = [dict(zip(rows[at]["seeds"], rows[at]["keys"], strict=True)) for at in found["rows"]]
    models = [np.stack([scores[of_seed[seed]] for seed in found["seeds"]]) for of_seed in keys]
    count, (seeds, images) = len(models), models[0].shape
    [human] = [scores[row["keys"][0]] for row in exported[number]["references"] if row["model"] == "human"]
    margin = 0.02 * human.mean()
    own, interaction = np.transpose([variances(each) for each in models])
    alike = stats.bartlett(*(each.mean(axis=1) for each in models)).pvalue
    prior, common = prior_of(own, seeds - 1)
    of_table = [found[name] for name in ("margin", "deviate_alike", "lent", "images")]
    assert of_table == pytest.approx([margin, alike, prior, images], **SAME)
    assert alike > 0.05
    between = np.maximum.reduce([own, interaction, (prior * common + (seeds - 1) * own) / (prior + seeds - 1)])
    free = min(prior + seeds - 1, count * (seeds - 1))

    pairs = list(combinations(range(count), 2))
    gaps, parts, left, degrees = np.transpose(
        [difference([models[i], models[j]], [between[i], between[j]], [free, free]) for i, j in pairs]
    )
    error, quantile = np.sqrt(parts + left), stats.t.ppf(1 - 0.025 / len(pairs), degrees)
    p = holm(2 * stats.t.sf(np.abs(gaps) / error, degrees))
    exported_pairs = {(pair["first"], pair["second"]): pair for pair in found["pairs"]}
    assert len(exported_pairs) == len(pairs)
    better, worse = np.zeros(count, int), np.zeros(count, int)
    for at, (one, two) in enumerate(pairs):
        winner, loser = (one, two) if gaps[at] > 0 else (two, one)
        pair, gap, half = (
            exported_pairs[found["rows"][winner], found["rows"][loser]],
            abs(gaps[at]),
            quantile[at] * error[at],
        )
        numbers = [pair[name] for name in ("difference", "low", "high", "p")]
        assert numbers == pytest.approx([gap, gap - half, gap + half, p[at]], **SAME)
        better[loser] += p[at] < 0.05
        worse[winner] += p[at] < 0.05
        same = gap + half < margin and half - gap < margin
        assert pair["verdict"] == ("same" if same else "better" if p[at] < 0.05 else "unknown")
        target = (max(gap, margin - gap) / (quantile[at] + 0.8416)) ** 2
        falling = left[at] + interaction[one] + interaction[two]
        by_seeds = seeds * parts[at] / (target - left[at])
        by_images = images * falling / (target - parts[at] - left[at] + falling)
        needed = [max(2, ceil(times)) if 0 < times < 1e7 else None for times in (by_seeds, by_images)]
        assert [pair["seeds"], pair["images"]] == (needed if pair["verdict"] == "unknown" else [None, None])
    for model, at in enumerate(found["rows"]):
        standing = rows[at]["ranks"]["CIDEr-D"]
        if standing["reason"] is None:
            assert (standing["best"], standing["worst"]) == (1 + better[model], count - worse[model])


def test_baselines(exported: list[dict[str, Any]], scores: dict[str, np.ndarray]) -> None:
    rows = [*exported[0]["rows"], *exported[0]["references"]]  # the others' baselines are of other code
    by_model = {row["model"]: np.stack([scores[key] for key in row["keys"]]) for row in rows}
    tests, found = [], []
    for row in exported[0]["rows"]:
        for test in row["ranks"]["CIDEr-D"]["baselines"]:
            tests.append(test)
            found.append(apart(by_model[row["model"]], by_model[test["baseline"]]))
    gaps, parts, left, degrees = np.transpose(found)
    p = holm(2 * stats.t.sf(np.abs(gaps) / np.sqrt(parts + left), degrees))
    assert exported[0]["comparisons"]["baseline_tests"] == len(tests)
    assert [test["difference"] for test in tests] == pytest.approx(gaps, **SAME)
    assert [test["p"] for test in tests] == pytest.approx(p, rel=1e-9, abs=0)
    assert [test["significant"] for test in tests] == (p < 0.05).tolist()
